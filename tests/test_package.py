"""The package as a user meets it."""

import tomllib
from importlib.metadata import version
from pathlib import Path

import tidelog

ROOT = Path(__file__).parent.parent


def test_the_version_is_the_one_of_the_project_file() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert tidelog.__version__ == project["version"] == version("tidelog")
