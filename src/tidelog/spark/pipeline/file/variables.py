"""`${NAME}` and `${NAME:-default}` in the texts of a pipeline file; `$${` is a literal `${`."""

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from tidelog.spark.pipeline.file.toml_lines import Path

_VARIABLE = re.compile(r"\$\$\{|\$\{(?P<body>[^}]*)\}?")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")

Report = Callable[[Path, str], None]


class FromVariable(str):
    """A text that holds the value of a variable: it may stand where a number is wanted."""

    __slots__ = ()


class Unknown(FromVariable):
    """A text whose variable is not set, which is reported: nothing else can be said about it."""

    __slots__ = ()


def substitute(tree: Any, variables: Mapping[str, str], report: Report, at: Path = ()) -> Any:
    """The same tree with variables in all texts replaced; what is missing is reported."""
    if isinstance(tree, dict):
        return {
            key: substitute(value, variables, report, (*at, key)) for key, value in tree.items()
        }
    if isinstance(tree, list):
        return [
            substitute(value, variables, report, (*at, index)) for index, value in enumerate(tree)
        ]
    if isinstance(tree, str):
        return _replaced(tree, variables, lambda message: report(at, message))
    return tree


def names_in(tree: Any) -> Iterator[str]:
    """The variables that the texts of a tree name."""
    if isinstance(tree, dict):
        for value in tree.values():
            yield from names_in(value)
    elif isinstance(tree, list):
        for value in tree:
            yield from names_in(value)
    elif isinstance(tree, str):
        for found in _VARIABLE.finditer(tree):
            if found["body"] is not None:
                yield found["body"].partition(":-")[0]


def _replaced(text: str, variables: Mapping[str, str], report: Callable[[str], None]) -> str:
    if "${" not in text:
        return text

    kind = FromVariable

    def refuse(message: str, instead: str) -> str:
        nonlocal kind
        kind = Unknown
        report(message)
        return instead

    def value(found: re.Match[str]) -> str:
        body = found["body"]
        if body is None:
            return "${"
        if not found[0].endswith("}"):
            return refuse(f"'{found[0]}' has no closing brace", body)
        name, has_default, default = body.partition(":-")
        if not _NAME.fullmatch(name):
            return refuse(
                f"'{found[0]}' is not a variable: write ${{NAME}} or ${{NAME:-default}}", body
            )
        if name in variables:
            return variables[name]
        if not has_default:
            return refuse(
                f"the variable {name} is not set: export it, or give a default with "
                f"${{{name}:-default}}",
                name,
            )
        return default

    made = _VARIABLE.sub(value, text)
    return kind(made)
