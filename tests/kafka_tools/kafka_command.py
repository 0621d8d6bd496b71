"""Apache Kafka's own command line tools, run as its scripts run them: a JVM per command."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from tests.kafka_clients.run import CACHE, fetch_libraries
from tidelog.errors import TidelogError

_TIMEOUT_S = 120.0
_LOGGING = Path(__file__).parent.parent / "kafka_clients" / "conf"

CONFIGS = "kafka.admin.ConfigCommand"
DUMP_LOG = "org.apache.kafka.tools.DumpLogSegments"
FEATURES = "org.apache.kafka.tools.FeatureCommand"
GET_OFFSETS = "org.apache.kafka.tools.GetOffsetShell"
GROUPS = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
LEADER_ELECTION = "org.apache.kafka.tools.LeaderElectionCommand"
LOG_DIRS = "org.apache.kafka.tools.LogDirsCommand"
PERF = "org.apache.kafka.tools.ProducerPerformance"
QUORUM = "org.apache.kafka.tools.MetadataQuorumCommand"
REASSIGN = "org.apache.kafka.tools.reassign.ReassignPartitionsCommand"
SERVER = "kafka.Kafka"
STORAGE = "kafka.tools.StorageTool"
TOPICS = "org.apache.kafka.tools.TopicCommand"
TRANSACTIONS = "org.apache.kafka.tools.TransactionsCommand"
VERIFIABLE_CONSUMER = "org.apache.kafka.tools.VerifiableConsumer"
VERIFIABLE_PRODUCER = "org.apache.kafka.tools.VerifiableProducer"


class ToolError(TidelogError):
    """A tool ended with a status other than 0, or not in time."""


def missing_programs() -> list[str]:
    return [name for name in ("java", "mvn") if shutil.which(name) is None]


class KafkaTools:
    """Runs a tool by the name of its class; jars are fetched by Maven the first time."""

    def __init__(self) -> None:
        CACHE.mkdir(parents=True, exist_ok=True)
        self._class_path = f"{_LOGGING}:{fetch_libraries(CACHE)}/*"

    def command(self, tool: str, *arguments: str) -> list[str]:
        return [
            "java",
            "-Xmx512m",
            "-XX:+UseSerialGC",
            "-XX:TieredStopAtLevel=1",
            "-cp",
            self._class_path,
            tool,
            *arguments,
        ]

    def run(self, tool: str, *arguments: str, timeout_s: float = _TIMEOUT_S) -> str:
        """What the tool printed on standard output."""
        try:
            ended = subprocess.run(
                self.command(tool, *arguments),
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=timeout_s,
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            raise ToolError(f"{tool} has not ended after {timeout_s:g} s: {error.output}") from None
        if ended.returncode:
            raise ToolError(
                f"{tool} {' '.join(arguments)} ended with {ended.returncode}: "
                f"{ended.stdout}{ended.stderr}"
            )
        return ended.stdout

    def begin(self, tool: str, output: Path, *arguments: str) -> subprocess.Popen[bytes]:
        """The tool as a process that goes on; it writes to `output`."""
        with output.open("wb") as file:
            return subprocess.Popen(
                self.command(tool, *arguments),
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
            )


def rows_of(table: str) -> list[dict[str, str]]:
    """The rows of a table that a tool printed with a line of headers, by header.

    Tools separate columns by spaces or tabs; a column whose values have spaces must be the last.
    """
    lines = [line for line in table.splitlines() if line.strip()]
    headers = lines[0].split()
    return [dict(zip(headers, _cells(line, len(headers)), strict=False)) for line in lines[1:]]


def _cells(line: str, count: int) -> Sequence[str]:
    return re.split(r"\s+", line.strip(), maxsplit=count - 1)


def fields_of(line: str) -> dict[str, str]:
    """The fields of a line such as `Topic: a<tab>Partition: 0<tab>Leader: 1`."""
    pairs = (part.partition(":") for part in re.split(r"\t|\s{2,}", line.strip()))
    return {name.strip(): value.strip() for name, _, value in pairs}
