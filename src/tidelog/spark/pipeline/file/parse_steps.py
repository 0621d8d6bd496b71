"""`[steps.NAME]`: SQL, watermarks, deduplication and Python functions."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path

from tidelog.spark.pipeline.file.document import Section
from tidelog.spark.pipeline.file.model import (
    DedupeStep,
    FunctionReference,
    PythonStep,
    SqlStep,
    Step,
    Watermark,
    WatermarkStep,
)
from tidelog.spark.pipeline.file.parse_sql import parse_sql
from tidelog.spark.pipeline.file.variables import Unknown

_KIND_BY_KEY = {"sql": "sql", "sql_file": "sql", "python": "python", "keys": "dedupe"}
_MODULE = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*")


def parse_step(section: Section) -> Step | None:
    """The step, or None after an error that leaves nothing to go on with."""
    name = str(section.path[-1])
    kind = section.kind(_KINDS, _KIND_BY_KEY)
    if kind is None:
        return None
    made = _KINDS[kind](section, name)
    section.finish()
    return made


def _sql(section: Section, name: str) -> SqlStep | None:
    sql = parse_sql(section)
    return None if sql is None else SqlStep(name, sql)


def _watermark(section: Section, name: str) -> WatermarkStep:
    reads = section.required_text("from")
    column = section.required_text("column")
    if "delay" not in section:
        section.missing("delay", ": how late rows may come, such as '10 minutes'")
    return WatermarkStep(name, reads, Watermark(column, section.duration_ms("delay", 0)))


def _dedupe(section: Section, name: str) -> DedupeStep:
    reads = section.required_text("from")
    keys = section.texts("keys")
    if not keys and "keys" not in section:
        section.missing("keys", ": the columns that make two rows the same")
    return DedupeStep(name, reads, keys, section.flag("within_watermark", True))


def _python(section: Section, name: str) -> PythonStep | None:
    text = section.required_text("python")
    reads = section.texts("from")
    if not reads and "from" not in section:
        section.missing("from", ": the views whose frames the function takes")
    arguments = section.section("arguments")
    for key in arguments.names():
        if not key.isidentifier():
            arguments.error(f"'{key}' cannot be the name of an argument", key)
    function = _function(section, text) if text else None
    if function is None:
        return None
    return PythonStep(name, reads, function, {key: arguments.raw(key) for key in arguments.names()})


def _function(section: Section, text: str) -> FunctionReference | None:
    if isinstance(text, Unknown):
        return None
    place, separator, function = text.rpartition(":")
    if not separator or not function.isidentifier() or not place:
        section.error(
            f"'python' is '{text}', but must be 'module:function' or 'file.py:function'", "python"
        )
        return None
    if not place.endswith(".py"):
        if not _MODULE.fullmatch(place):
            section.error(f"'{place}' is not the name of a module", "python")
            return None
        return FunctionReference(place, None, function)
    file = Path(section.document.resolve(place))
    problem = _file_problem(file, function)
    if problem is not None:
        section.error(problem, "python")
    return FunctionReference(None, file, function)


def _file_problem(file: Path, function: str) -> str | None:
    """What is wrong with a file of functions, seen without running it."""
    import ast

    from tidelog.spark.pipeline.file.problems import near

    try:
        tree = ast.parse(file.read_bytes(), str(file))
    except OSError as error:
        return f"{file} cannot be read: {error.strerror}"
    except (SyntaxError, ValueError) as error:
        line = getattr(error, "lineno", None)
        return f"{file}{f':{line}' if line else ''} is not Python: {error}"
    names = {node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.ClassDef)}
    for node in tree.body:
        if isinstance(node, ast.Assign):
            names |= {target.id for target in node.targets if isinstance(target, ast.Name)}
        elif isinstance(node, ast.Import | ast.ImportFrom):
            names |= {alias.asname or alias.name for alias in node.names}
    if function in names or "*" in names:
        return None
    return f"{file} has no function '{function}'.{near(function, names)}"


_KINDS: Mapping[str, Callable[[Section, str], Step | None]] = {
    "sql": _sql,
    "watermark": _watermark,
    "dedupe": _dedupe,
    "python": _python,
}
