"""The ways of requests in docs/architecture.md lead through files and functions that exist."""

import re
from pathlib import Path

import pytest

_ROOT = Path(__file__).parents[2]
_SOURCES = _ROOT / "src" / "tidelog"
_PAGE = (_ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
_SECTION = _PAGE.partition("## Four requests, step by step\n")[2].partition("\n## ")[0]


def _steps() -> list[tuple[str, str]]:
    """Each name in the section, with the file that stands before it."""
    steps = []
    path = ""
    for quoted in re.findall(r"`([^`\n]+)`", _SECTION):
        if quoted.endswith(".py"):
            path = quoted
        elif quoted.isidentifier() and not quoted.startswith("__"):
            steps.append((path, quoted))
    return steps


def test_the_section_names_many_steps() -> None:
    assert len(_steps()) > 30


@pytest.mark.parametrize(("path", "name"), _steps())
def test_a_step_is_a_function_or_class_of_its_file(path: str, name: str) -> None:
    source = (_SOURCES / path).read_text(encoding="utf-8")
    assert re.search(rf"^\s*(def|class) {name}\b", source, re.MULTILINE), f"{path} has no {name}"
