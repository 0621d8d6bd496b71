"""Log directories that go away and come back, and the topics that change meanwhile."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.groups.librdkafka_member import eventually
from tests.server.batches import batch, fetch_request, produce, produce_request, rows, values
from tests.server.running_node import RunningNode
from tidelog.cluster.metadata.records.settings import ProducerIdsRecord
from tidelog.protocol.apis.delete_topics import DeleteTopicsRequest, DeleteTopicState
from tidelog.protocol.errors import ErrorCode
from tidelog.server.local_partitions import UnknownLogsError

StartNode = Callable[..., RunningNode]

PARTITIONS = 2


class TwoDirectories:
    """A node's two log directories; the second can be unplugged while the node is down."""

    def __init__(self, folder: Path, start_node: StartNode) -> None:
        self.first, self.second = folder / "first", folder / "second"
        self._elsewhere = folder / "elsewhere"
        self._start_node = start_node

    def start(self) -> RunningNode:
        return self._start_node({"log.dirs": f"{self.first},{self.second}"})

    def unplug(self) -> None:
        self.second.rename(self._elsewhere)
        self.second.write_text("no directory")

    def plug_in(self) -> None:
        self.second.unlink()
        self._elsewhere.rename(self.second)

    def strays(self) -> list[str]:
        return sorted(path.name for path in self.second.glob("*-stray"))


@pytest.fixture
def directories(tmp_path: Path, start_node: StartNode) -> TwoDirectories:
    return TwoDirectories(tmp_path, start_node)


def _write(node: RunningNode, value: bytes) -> None:
    with node.client() as client:
        for partition in range(PARTITIONS):
            produce(client, "orders", value, partition=partition)


def _read(node: RunningNode) -> list[list[bytes]]:
    with node.client() as client:
        found = rows(client.call(fetch_request("orders", dict.fromkeys(range(PARTITIONS), 0)), 12))
    return [values(found[partition]) for partition in range(PARTITIONS)]


def _delete_topic(node: RunningNode) -> None:
    """And two snapshots, after which nothing in the metadata tells of the topic."""
    request = DeleteTopicsRequest(topics=[DeleteTopicState(name="orders")], timeout_ms=10_000)
    with node.client() as client:
        (row,) = client.call(request, 6).responses
    assert row.error_code == 0
    store, metadata = node.node.store, node.node.metadata
    eventually(lambda: not node.call(lambda: store.is_deleting), "the logs are gone")
    node.wait_for(metadata.snapshot)
    node.wait_for(
        lambda: metadata.propose([ProducerIdsRecord(next_producer_id=1_000_000)]).committed
    )
    node.wait_for(metadata.snapshot)
    assert node.call(metadata.removed_topic_ids) == frozenset()


def _partition_in(directory: Path) -> int:
    (found,) = directory.glob("orders-?")
    return int(found.name.rpartition("-")[2])


def test_a_log_of_a_topic_that_was_deleted_while_its_directory_was_away_is_set_aside(
    directories: TwoDirectories,
) -> None:
    node = directories.start()
    node.create_topic("orders", PARTITIONS)
    _write(node, b"old")
    lost = _partition_in(directories.second)
    node.stop()
    directories.unplug()
    node = directories.start()
    _delete_topic(node)
    node.stop()
    directories.plug_in()

    node = directories.start()
    assert "orders" not in node.node.image.topics_by_name
    (stray,) = directories.strays()
    assert stray.startswith(f"orders-{lost}.")
    assert (directories.second / stray / f"{0:020}.log").stat().st_size > 0
    node.create_topic("orders", PARTITIONS)
    _write(node, b"new")
    assert _read(node) == [[b"new"], [b"new"]]
    node.stop()
    again = directories.start()
    assert _read(again) == [[b"new"], [b"new"]]
    assert directories.strays() == [stray]


def test_a_topic_that_was_made_again_while_a_directory_was_away_keeps_its_own_log(
    directories: TwoDirectories,
) -> None:
    node = directories.start()
    node.create_topic("orders", PARTITIONS)
    _write(node, b"old")
    node.stop()
    directories.unplug()
    node = directories.start()
    _delete_topic(node)
    node.create_topic("orders", PARTITIONS)
    _write(node, b"new")
    node.stop()
    directories.plug_in()

    node = directories.start()
    assert _read(node) == [[b"new"], [b"new"]]
    assert len(directories.strays()) == 1
    _write(node, b"newer")
    assert _read(node) == [[b"new", b"newer"]] * 2


def test_a_log_that_the_metadata_lost_is_still_refused(directories: TwoDirectories) -> None:
    """The directory served to the end, so that nothing can have been deleted behind its back."""
    node = directories.start()
    node.create_topic("orders", PARTITIONS)
    _write(node, b"kept")
    node.stop()
    (log,) = directories.second.glob("orders-?")
    log.rename(directories.second / "lost-0")
    (directories.second / "lost-0" / "partition.metadata").write_text(
        "version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAQQ"
    )
    with pytest.raises(UnknownLogsError, match="lost-0"):
        directories.start()
    assert directories.strays() == []
    assert (directories.second / "lost-0" / f"{0:020}.log").stat().st_size > 0


def test_a_partition_whose_directory_is_away_waits_for_it(directories: TwoDirectories) -> None:
    node = directories.start()
    node.create_topic("orders", PARTITIONS)
    _write(node, b"kept")
    away = _partition_in(directories.second)
    node.stop()
    directories.unplug()
    node = directories.start()
    with node.client() as client:
        request = produce_request("orders", {away: batch(b"lost")})
        row = client.call(request, 9).responses[0].partition_responses[0]
        assert row.error_code == ErrorCode.KAFKA_STORAGE_ERROR
        topic_id = node.node.image.topics_by_name["orders"].topic_id
        row = client.call(produce_request(topic_id, {away: batch(b"lost")}), 13).responses[0]
        assert row.partition_responses[0].error_code == ErrorCode.KAFKA_STORAGE_ERROR
        for topic, version in (("orders", 12), (topic_id, 13)):
            (found,) = rows(client.call(fetch_request(topic, {away: 0}), version)).values()
            assert found.error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert produce(client, "orders", b"more", partition=1 - away) == 1
    node.create_topic("new")  # has no log elsewhere
    with node.client() as client:
        assert produce(client, "new", b"x") == 0
    node.stop()
    directories.plug_in()
    node = directories.start()
    assert _read(node)[away] == [b"kept"]
