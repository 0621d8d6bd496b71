"""kafka-dump-log reads the files of every node: data, indexes, coordinators, metadata."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.kafka_tools.kafka_command import (
    DUMP_LOG,
    PERF,
    TOPICS,
    VERIFIABLE_CONSUMER,
    KafkaTools,
)
from tidelog.testing import Cluster

pytestmark = [pytest.mark.kafka_tools, pytest.mark.timeout(300)]

Run = Callable[..., str]
_RECORDS = 2000


@pytest.fixture(scope="module")
def written(tools: KafkaTools, cluster: Cluster) -> Cluster:
    """A stopped cluster that has data, groups, transactions, and snapshots of its metadata."""
    where = ("--bootstrap-server", cluster.bootstrap)
    tools.run(
        TOPICS,
        *where,
        *("--create", "--topic", "dumped", "--partitions", "1", "--replication-factor", "3"),
        *("--config", "segment.bytes=1048576", "--config", "index.interval.bytes=1000"),
    )
    tools.run(
        PERF,
        *("--topic", "dumped", "--num-records", str(_RECORDS), "--record-size", "1000"),
        *("--throughput", "-1", *where, "--transactional-id", "perf"),
    )
    tools.run(
        VERIFIABLE_CONSUMER,
        *where,
        *("--topic", "dumped", "--group-id", "dump-readers"),
        *("--max-messages", "100", "--reset-policy", "earliest"),
    )
    for node in list(cluster.brokers):
        cluster.stop(node)
    return cluster


def dump(tools: KafkaTools, files: list[Path], *options: str) -> str:
    assert files, "there is nothing to dump"
    names = ",".join(map(str, files))
    printed = tools.run(DUMP_LOG, "--files", names, *options)
    for bad in ("Found non-consecutive", "Mismatches", "isvalid: false", "Exception"):
        assert bad not in printed, printed[-2000:]
    return printed


def folders(cluster: Cluster, start: str) -> list[list[Path]]:
    """Of each node, the folders of partitions whose names begin so."""
    return [sorted(broker.data.glob(f"{start}-[0-9]*")) for broker in cluster.brokers.values()]


def files_of(places: list[Path], *endings: str) -> list[Path]:
    return sorted(
        file
        for folder in places
        for ending in endings
        for file in folder.glob(f"*{ending}")
        if file.stat().st_size
    )


def test_data_and_its_indexes(tools: KafkaTools, written: Cluster) -> None:
    seen = set()
    for places in folders(written, "dumped"):
        logs = files_of(places, ".log")
        assert len(logs) > 1, "the log has not rolled"
        printed = dump(tools, logs, "--deep-iteration")
        offsets = {
            int(line.partition("offset: ")[2].split()[0])
            for line in printed.splitlines()
            if line.startswith("| offset") and "keySize" in line and "endTxnMarker" not in line
        }
        assert len(offsets) == _RECORDS
        seen.add(frozenset(offsets))
        indexes = files_of(places, ".index", ".timeindex")
        dump(tools, indexes, "--index-sanity-check")
        dump(tools, indexes, "--verify-index-only")
        snapshots = files_of(places, ".snapshot")
        assert "producerId" in dump(tools, snapshots)
    assert len(seen) == 1, "replicas differ"


def test_the_logs_of_coordinators(tools: KafkaTools, written: Cluster) -> None:
    for groups, transactions in zip(
        folders(written, "__consumer_offsets"), folders(written, "__transaction_state"), strict=True
    ):
        printed = dump(tools, files_of(groups, ".log"), "--offsets-decoder")
        assert "dump-readers" in printed
        printed = dump(tools, files_of(transactions, ".log"), "--transaction-log-decoder")
        assert '"transactionalId":"perf"' in printed
        assert '"transactionStatus":4' in printed or "CompleteCommit" in printed


def test_the_metadata_log_and_its_snapshots(tools: KafkaTools, written: Cluster) -> None:
    for broker in written.brokers.values():
        folder = broker.data / "__cluster_metadata-0"
        printed = dump(tools, sorted(folder.glob("*.log")), "--cluster-metadata-decoder")
        assert "REGISTER_BROKER_RECORD" in printed
        assert '"name":"dumped"' in printed
        assert "UNKNOWN" not in printed
        snapshots = sorted(folder.glob("*.checkpoint"))
        if snapshots:
            dump(tools, snapshots, "--cluster-metadata-decoder")


def test_a_node_reads_what_was_dumped_again(written: Cluster, tools: KafkaTools) -> None:
    written.start_all()
    printed = tools.run(
        TOPICS, "--bootstrap-server", written.bootstrap, "--describe", "--topic", "dumped"
    )
    assert "dumped" in printed
