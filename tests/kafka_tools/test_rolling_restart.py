"""kafka-verifiable-producer and -consumer while the nodes restart one after the other."""

from __future__ import annotations

import json
import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.kafka_tools.kafka_command import (
    TOPICS,
    VERIFIABLE_CONSUMER,
    VERIFIABLE_PRODUCER,
    KafkaTools,
)
from tidelog.testing import Cluster

pytestmark = [pytest.mark.kafka_tools, pytest.mark.timeout(300)]

_MESSAGES = 6000
_PER_SECOND = 250


def events(output: Path, name: str) -> Iterator[dict[str, Any]]:
    for line in output.read_text(errors="replace").splitlines():
        if line.startswith("{") and line.endswith("}"):
            event = json.loads(line)
            if event["name"] == name:
                yield event


def test_nothing_is_lost_and_nothing_is_doubled(
    tools: KafkaTools, cluster: Cluster, tmp_path: Path
) -> None:
    where = ("--bootstrap-server", cluster.bootstrap, "--topic", "verified")
    tools.run(TOPICS, *where, "--create", "--partitions", "6", "--replication-factor", "3")
    # The tool does not send again by itself what a leader that hands over has refused.
    patient = tmp_path / "producer.properties"
    patient.write_text("retries=2147483647\nenable.idempotence=true\n")
    sent, read = tmp_path / "sent", tmp_path / "read"
    producer = tools.begin(
        VERIFIABLE_PRODUCER,
        sent,
        *where,
        *("--max-messages", str(_MESSAGES)),
        *("--throughput", str(_PER_SECOND)),
        *("--command-config", str(patient)),
    )
    consumer = tools.begin(
        VERIFIABLE_CONSUMER,
        read,
        *where,
        *("--group-id", "verifiers", "--verbose", "--reset-policy", "earliest"),
    )
    try:
        for node in (1, 2, 3):
            cluster.restart(node)
        assert producer.poll() is None, "the producer has ended before the restarts"
        assert producer.wait(120) == 0
        acknowledged = {event["value"] for event in events(sent, "producer_send_success")}
        assert len(acknowledged) == _MESSAGES
        deadline = time.monotonic() + 60
        places: dict[str, set[tuple[int, int]]] = {}
        while acknowledged - places.keys():
            assert time.monotonic() < deadline, f"{len(places)} of {_MESSAGES} were read"
            time.sleep(0.5)
            places = defaultdict(set)
            for event in events(read, "record_data"):
                places[event["value"]].add((event["partition"], event["offset"]))
    finally:
        for process in (producer, consumer):
            process.terminate()
            process.wait(60)
    doubled = {value for value, where in places.items() if len(where) > 1}
    assert not doubled
    assert places.keys() == acknowledged
