"""`${NAME}` and `${NAME:-default}` in the texts of a pipeline file; `$${` is a literal `${`."""

import re
from collections.abc import Callable, Mapping
from typing import Any

from tidelog.spark.pipeline.toml_lines import Path

_VARIABLE = re.compile(r"\$\$\{|\$\{(?P<body>[^}]*)\}?")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")

Report = Callable[[Path, str], None]


class FromVariable(str):
    """A text that holds the value of a variable: it may stand where a number is wanted."""

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


def _replaced(text: str, variables: Mapping[str, str], report: Callable[[str], None]) -> str:
    if "${" not in text:
        return text

    def value(found: re.Match[str]) -> str:
        body = found["body"]
        if body is None:
            return "${"
        if not found[0].endswith("}"):
            report(f"'{found[0]}' has no closing brace")
            return ""
        name, has_default, default = body.partition(":-")
        if not _NAME.fullmatch(name):
            report(f"'{found[0]}' is not a variable: write ${{NAME}} or ${{NAME:-default}}")
            return ""
        if name in variables:
            return variables[name]
        if not has_default:
            report(
                f"the variable {name} is not set: export it, or give a default with "
                f"${{{name}:-default}}"
            )
        return default

    return FromVariable(_VARIABLE.sub(value, text))
