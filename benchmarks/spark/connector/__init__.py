"""Spark's own Kafka source, fetched from Maven Central where the machine can."""

import os
import shutil
import subprocess
from pathlib import Path

_POM = Path(__file__).parent / "pom.xml"
_CACHE = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "tidelog-benchmarks"


def connector_jars() -> list[Path]:
    """The jars of Spark's Kafka source, fetched once; none where Maven is missing or fails."""
    folder = _CACHE / "spark-kafka-4.2.0"
    if not (folder / ".complete").exists():
        if shutil.which("mvn") is None:
            return []
        fetch = ["mvn", "-q", "-B", "-f", str(_POM), "dependency:copy-dependencies"]
        fetched = subprocess.run(
            [*fetch, f"-DoutputDirectory={folder}"], stdin=subprocess.DEVNULL, check=False
        )
        if fetched.returncode:
            return []
        (folder / ".complete").touch()
    return sorted(folder.glob("*.jar"))
