"""Run Apache Kafka's own client integration tests against Tidelog, or against Kafka itself.

    python -m tests.kafka_clients.run                                     # every test
    python -m tests.kafka_clients.run org.apache.kafka.clients.consumer.PlaintextConsumerTest
    python -m tests.kafka_clients.run --against kafka CLASS CLASS#METHOD  # full class names

Needs a JDK of version 17 or later and Maven, which fetches Kafka's jars once. Jars, logs and
results are kept in a cache folder outside the source tree (--work).
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import zlib
from pathlib import Path

from tests.kafka_clients.results import Summary, read_results, read_verdicts
from tidelog.errors import TidelogError

_HERE = Path(__file__).parent
_VERDICTS = _HERE / "verdicts.tsv"
CACHE = Path(os.environ.get("XDGCACHE_HOME", Path.home() / ".cache")) / "tidelog-kafka-clients"


class RunError(TidelogError):
    """The tests could not be run."""


def require_programs() -> None:
    missing = [name for name in ("java", "javac", "mvn") if shutil.which(name) is None]
    if missing:
        raise RunError(
            f"Kafka's client tests need {', '.join(missing)} on the PATH: "
            "install a JDK of version 17 or later and Maven."
        )


def fetch_libraries(work: Path) -> Path:
    """The folder with the jars of pom.xml, which Maven fills the first time."""
    pom = _HERE / "pom.xml"
    libraries = work / f"lib-{zlib.crc32(pom.read_bytes()):08x}"
    if not libraries.exists():
        partial = libraries.with_suffix(".part")
        sys.stdout.write("Maven fetches Kafka's test jars ...\n")
        sys.stdout.flush()
        call(
            "mvn",
            "-q",
            "-B",
            "-f",
            str(pom),
            "dependency:copy-dependencies",
            f"-DoutputDirectory={partial}",
        )
        partial.rename(libraries)
    return libraries


def compile_java(sources: Path, libraries: Path, target: Path) -> None:
    files = sorted(str(path) for path in sources.rglob("*.java"))
    call("javac", "-nowarn", "-d", str(target), "-cp", f"{libraries}/*", *files)


def call(*command: str) -> None:
    if subprocess.run(command, stdin=subprocess.DEVNULL, check=False).returncode:
        raise RunError(f"{command[0]} failed; its output is above.")


def client_tests(libraries: Path) -> str:
    """The argument that stands for every cluster test of the clients' integration test jar."""
    jars = list(libraries.glob("kafka-clients-integration-tests-*-test.jar"))
    if len(jars) != 1:
        raise RunError(f"{libraries} has {len(jars)} client test jars, not 1; delete the folder.")
    return f"jar:{jars[0]}"


def run_tests(arguments: argparse.Namespace, out: Path) -> None:
    libraries = fetch_libraries(arguments.work)
    with tempfile.TemporaryDirectory(prefix="classes-", dir=arguments.work) as folder:
        classes = Path(folder)
        class_path = [classes / "runner", _HERE / "conf"]
        compile_java(_HERE / "runner", libraries, classes / "runner")
        if arguments.against == "tidelog":
            compile_java(_HERE / "override", libraries, classes / "override")
            class_path.append(classes / "override")
        out.mkdir(parents=True, exist_ok=True)
        for old in ("results.tsv", "traces.txt", "refused.tsv"):
            (out / old).unlink(missing_ok=True)
        with (out / "stdout.txt").open("wb") as stdout, (out / "stderr.txt").open("wb") as stderr:
            ended = subprocess.run(
                [
                    "java",
                    "-Xmx1g",
                    "-XX:+UseSerialGC",
                    "-XX:TieredStopAtLevel=1",
                    *(f"-D{option}" for option in arguments.define),
                    f"-Dkit.out={out}",
                    f"-Dkit.broker={arguments.broker}",
                    f"-Dkit.timeout={arguments.timeout_s}",
                    f"-Dkit.verdicts={'' if arguments.ignore_verdicts else _VERDICTS}",
                    f"-Djava.io.tmpdir={out}",
                    "-cp",
                    ":".join([*(str(part) for part in class_path), f"{libraries}/*"]),
                    "suites.Main",
                    *(arguments.tests or [client_tests(libraries)]),
                ],
                cwd=out,
                stdin=subprocess.DEVNULL,
                stdout=stdout,
                stderr=stderr,
                check=False,
            )
    if ended.returncode:
        raise RunError(f"The test JVM ended with status {ended.returncode}; see {out}/stderr.txt.")


def report(out: Path) -> int:
    """Print what came out; the exit status is 1 when a failure is not explained."""
    verdicts = read_verdicts(_VERDICTS)
    summary = Summary(read_results(out / "results.tsv"), verdicts)
    sys.stdout.write(f"{summary.table()}\n{summary.failures()}\n")
    refused = out / "refused.tsv"
    if refused.exists():
        count = len(refused.read_text().splitlines())
        sys.stdout.write(f"{count} settings of tests were refused by the broker: {refused}\n")
    if not summary.run:
        raise RunError(f"No test was run; see {out}/stdout.txt.")
    if summary.unexplained:
        sys.stdout.write(
            f"{len(summary.unexplained)} of {summary.run} tests failed without an entry in "
            f"{_VERDICTS.name}; stack traces: {out}/traces.txt, broker logs: {out}/logs\n"
        )
        return 1
    sys.stdout.write(f"{summary.run} tests run, no unexplained failures\n")
    return 0


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("tests", nargs="*", metavar="CLASS[#METHOD]", help="default: every test")
    parser.add_argument("--against", choices=("tidelog", "kafka"), default="tidelog")
    parser.add_argument(
        "--broker",
        default=str(Path(sys.executable).with_name("tidelog")),
        help="the tidelog command (default: the one beside this Python)",
    )
    parser.add_argument("--work", type=Path, default=CACHE, help=f"cache folder ({CACHE})")
    parser.add_argument("--name", help="folder of the results in the cache (default: AGAINST)")
    parser.add_argument("--timeout-s", type=int, default=60, help="limit of one test (60)")
    parser.add_argument(
        "--ignore-verdicts", action="store_true", help="also try the tests that verdicts.tsv skips"
    )
    parser.add_argument(
        "-D",
        dest="define",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="a Java system property: see README.md",
    )
    return parser.parse_args()


def main() -> int:
    arguments = parse_arguments()
    try:
        require_programs()
        arguments.work = arguments.work.absolute()
        arguments.work.mkdir(parents=True, exist_ok=True)
        out = arguments.work / (arguments.name or arguments.against)
        run_tests(arguments, out)
        return report(out)
    except RunError as error:
        sys.stderr.write(f"error: {error}\n")
        return 2


if __name__ == "__main__":
    sys.exit(main())
