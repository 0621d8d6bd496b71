"""A node reaches for nothing outside of itself: clock, network, files and threads are handed in."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import tidelog

SOURCE = Path(tidelog.__file__).parent
LAYERS = ("server", "security", "coordinator", "cluster", "storage")

# The process that a node runs in: it hands the operating system in.
ENTRY = SOURCE / "server" / "process.py"

OUTSIDE = {
    "asyncio", "concurrent", "fcntl", "glob", "multiprocessing", "queue", "random", "sched",
    "secrets", "select", "selectors", "shutil", "signal", "socket", "ssl", "subprocess", "tempfile",
    "threading", "time", "uuid",
}  # fmt: skip
TYPES = {("random", "Random")}  # what is handed in has a type
OS_NAMES = {"strerror", "stat_result"}  # and the flags of open


def _names_from_outside(tree: ast.AST) -> list[str]:
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found += [a.name for a in node.names if a.name.partition(".")[0] in OUTSIDE]
        elif isinstance(node, ast.ImportFrom):
            module = (node.module or "").partition(".")[0]
            found += [
                f"{module}.{a.name}"
                for a in node.names
                if (module in OUTSIDE and (module, a.name) not in TYPES) or module == "os"
            ]
        elif (
            isinstance(node, ast.Attribute)
            and isinstance(node.value, ast.Name)
            and node.value.id == "os"
            and not node.attr.startswith("O_")
            and node.attr not in OS_NAMES
        ):
            found.append(f"os.{node.attr}")
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            found += [node.func.id] if node.func.id == "open" else []
    return found


@pytest.mark.parametrize("layer", LAYERS)
def test_no_module_of_the_node_reaches_for_the_outside(layer: str) -> None:
    modules = sorted((SOURCE / layer).rglob("*.py"))
    assert modules
    reaching = {
        str(path.relative_to(SOURCE)): names
        for path in modules
        if path != ENTRY and (names := _names_from_outside(ast.parse(path.read_text())))
    }
    assert reaching == {}


@pytest.mark.parametrize(
    "source",
    ["import time", "from socket import socket", "import os\nos.urandom(4)", "import random",
     "from os import open", "open('x')", "import os\nos.listdir('.')", "import queue"],
)  # fmt: skip
def test_the_rule_finds_what_it_is_to_find(source: str) -> None:
    assert _names_from_outside(ast.parse(source))
