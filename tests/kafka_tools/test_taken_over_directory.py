"""The data directory of a Kafka node under Tidelog, and under Kafka again."""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.kafka_tools.kafka_command import (
    DUMP_LOG,
    GET_OFFSETS,
    GROUPS,
    PERF,
    SERVER,
    STORAGE,
    TOPICS,
    TRANSACTIONS,
    VERIFIABLE_CONSUMER,
    KafkaTools,
    ToolError,
    rows_of,
)
from tidelog.testing.broker import free_port

pytestmark = [pytest.mark.kafka_tools, pytest.mark.timeout(420)]

_TIDELOG = str(Path(sys.executable).with_name("tidelog"))
_CLUSTER_ID = "3Db5QLSqSZieL3rJBUUegA"
_STOP_TIMEOUT_S = 60.0


class Directory:
    """A Kafka node's directory and its server.properties, of which either server makes a node."""

    def __init__(self, tools: KafkaTools, folder: Path) -> None:
        self.tools = tools
        self.data = folder / "data"
        self.properties = folder / "server.properties"
        port, controller = free_port(), free_port()
        self.bootstrap = f"127.0.0.1:{port}"
        self.properties.write_text(
            "process.roles=broker,controller\n"
            "node.id=1\n"
            f"log.dirs={self.data}\n"
            f"listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}\n"
            "controller.listener.names=CONTROLLER\n"
            f"controller.quorum.bootstrap.servers=127.0.0.1:{controller}\n"
            "offsets.topic.num.partitions=3\n"
            "offsets.topic.replication.factor=1\n"
            "transaction.state.log.num.partitions=3\n"
            "transaction.state.log.replication.factor=1\n"
            "transaction.state.log.min.isr=1\n"
            "group.initial.rebalance.delay.ms=0\n"
        )
        self._output = folder

    def format(self) -> None:
        config = ("-c", str(self.properties))
        self.tools.run(STORAGE, "format", "-t", _CLUSTER_ID, *config, "--standalone")

    def run(self, tool: str, *arguments: str) -> str:
        return self.tools.run(tool, "--bootstrap-server", self.bootstrap, *arguments)

    @contextmanager
    def served_by(self, name: str) -> Iterator[None]:
        command = {
            "kafka": self.tools.command(SERVER, str(self.properties)),
            "tidelog": [_TIDELOG, "up", "--config", str(self.properties)],
        }[name]
        output = self._output / f"{name}.log"
        with output.open("ab") as file:
            server = subprocess.Popen(command, stdout=file, stderr=subprocess.STDOUT)
        try:
            self._await(server, output)
            yield
        finally:
            server.terminate()
            assert server.wait(_STOP_TIMEOUT_S) in (0, 143), output.read_text()[-3000:]

    def _await(self, server: subprocess.Popen[bytes], output: Path) -> None:
        deadline = time.monotonic() + 60
        while True:
            assert server.poll() is None, output.read_text()[-3000:]
            try:
                self.run(TOPICS, "--list")
            except ToolError:
                assert time.monotonic() < deadline, output.read_text()[-3000:]
                time.sleep(0.5)
            else:
                return

    def produce(self, records: int) -> None:
        self.tools.run(
            PERF,
            *("--topic", "orders", "--num-records", str(records), "--record-size", "200"),
            *("--throughput", "-1", "--transactional-id", "perf"),
            *("--bootstrap-server", self.bootstrap),
        )

    def consume(self, records: int) -> None:
        self.run(
            VERIFIABLE_CONSUMER,
            *("--topic", "orders", "--group-id", "readers"),
            *("--max-messages", str(records), "--reset-policy", "earliest"),
        )

    def end_offset(self) -> int:
        return int(self.run(GET_OFFSETS, "--topic", "orders").strip().rpartition(":")[2])

    def committed(self) -> int:
        (row,) = rows_of(self.run(GROUPS, "--describe", "--group", "readers"))
        return int(row["CURRENT-OFFSET"])


def test_a_directory_goes_from_kafka_to_tidelog_and_back(tools: KafkaTools, tmp_path: Path) -> None:
    directory = Directory(tools, tmp_path)
    directory.format()
    with directory.served_by("kafka"):
        create = ("--create", "--topic", "orders", "--partitions", "1", "--replication-factor", "1")
        directory.run(TOPICS, *create, "--config", "retention.ms=86400000")
        directory.produce(1000)
        directory.consume(400)
        end, committed = directory.end_offset(), directory.committed()
        assert end > 1000, "no marker of a transaction"
        assert committed >= 400
    with directory.served_by("tidelog"):
        described = directory.run(TOPICS, "--describe", "--topic", "orders")
        assert "retention.ms=86400000" in described
        assert (directory.end_offset(), directory.committed()) == (end, committed)
        transactions = directory.run(TRANSACTIONS, "list")
        assert "perf" in transactions
        assert "CompleteCommit" in transactions
        directory.produce(500)
        directory.consume(300)
        later, recommitted = directory.end_offset(), directory.committed()
        assert later > end + 500
        assert recommitted >= committed + 300
    for folder in sorted(directory.data.glob("*-[0-9]*")):
        files = [file for file in sorted(folder.glob("*.log")) if file.stat().st_size]
        if files:
            decoder = {
                "__cluster_metadata-0": ["--cluster-metadata-decoder"],
            }.get(folder.name, [])
            names = ",".join(map(str, files))
            printed = tools.run(DUMP_LOG, "--files", names, *decoder, "--deep-iteration")
            assert "isvalid: false" not in printed
    # Kafka takes every folder for a partition's. A node that was stopped cleanly has no use for it.
    shutil.rmtree(directory.data / "journal")
    with directory.served_by("kafka"):
        assert (directory.end_offset(), directory.committed()) == (later, recommitted)
        directory.produce(100)
        assert directory.end_offset() > later + 100
