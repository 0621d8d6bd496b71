"""The command line that the comparisons share, and what is compared with what."""

from __future__ import annotations

import argparse
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TypeVar

from rich.console import Console

from benchmarks.servers import SOURCES, KafkaServer, kafka_libraries

QUICK_SCALE = 0.1

_Broker = TypeVar("_Broker")
Make = Callable[[Path], _Broker]


def read_options(
    description: str | None, every: Sequence[str], *, warm_seconds: float, pages: str
) -> argparse.Namespace:
    """`every` are the measurements there are, `pages` what --docs writes."""
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", default=",".join(every), help=f"some of {','.join(every)}")
    parser.add_argument(
        "--warm-seconds", type=float, default=warm_seconds, help="the warm-up ends then in any case"
    )
    parser.add_argument("--scale", type=float, default=1.0, help="so many times the load")
    parser.add_argument(
        "--quick",
        action="store_true",
        help=f"one round, --scale {QUICK_SCALE}, one slice of warm-up: to see that it runs",
    )
    parser.add_argument("--no-kafka", action="store_true", help="measure Tidelog alone")
    parser.add_argument(
        "--against", default="", help="a checkout or a git reference to compare with, not Kafka"
    )
    parser.add_argument("--json", default="", help="file for all rounds")
    parser.add_argument("--docs", default="", help=f"folder for {pages}")
    options = parser.parse_args()
    options.only = options.only.split(",")
    if unknown := set(options.only) - set(every):
        parser.error(f"--only does not know {', '.join(sorted(unknown))}; it knows {every}")
    if options.quick:
        options.rounds, options.scale, options.warm_seconds = 1, QUICK_SCALE, 1
    return options


def what_to_compare(
    options: argparse.Namespace,
    stack: ExitStack,
    console: Console,
    *,
    tidelog: Callable[[str, Path], Make[_Broker]],
    kafka: Callable[[Path], Make[_Broker]],
) -> dict[str, Make[_Broker]]:
    """Makers by name, the first against the second; `tidelog` takes a name and sources, `kafka`
    its libraries."""
    if options.against:
        base = stack.enter_context(_checkout(options.against))
        return {"this": tidelog("this", SOURCES), "base": tidelog("base", base / "src")}
    makers = {"Tidelog": tidelog("Tidelog", SOURCES)}
    libraries = None if options.no_kafka else kafka_libraries()
    if libraries is None:
        console.print(
            "Apache Kafka is not measured: it needs java and mvn (or --no-kafka was given)"
        )
    else:
        makers[KafkaServer.name] = kafka(libraries)
    return makers


@contextmanager
def _checkout(path_or_reference: str) -> Iterator[Path]:
    """The folder itself, or a worktree of the reference for as long as it is needed."""
    if Path(path_or_reference).is_dir():
        yield Path(path_or_reference).resolve()
        return
    git = ["git", "-C", str(SOURCES.parent), "worktree"]
    with tempfile.TemporaryDirectory(prefix="tidelog-base-") as folder:
        tree = Path(folder) / "tree"
        subprocess.run(
            [*git, "add", "--quiet", "--detach", str(tree), path_or_reference], check=True
        )
        try:
            yield tree
        finally:
            subprocess.run([*git, "remove", "--force", str(tree)], check=True)
