"""Finalized feature levels: chosen, changed, told to clients, kept, and what follows from them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.compatibility.transaction_calls import (
    TransactionalProducer,
    committed_values,
    wait_until_stable,
)
from tests.server.running_node import RunningNode
from tidelog.cluster.metadata.metadata_loading import DIRECTORY_NAME
from tidelog.cluster.metadata.metadata_log import MetadataLog
from tidelog.protocol.apis.api_versions import ApiVersionsRequest
from tidelog.protocol.apis.update_features import FeatureUpdateKey, UpdateFeaturesRequest
from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.records import decode_batches
from tidelog.raft.local_node import LocalNode
from tidelog.raft.settings import QuorumSettings
from tidelog.raft.voters import ReplicaKey, VoterNode, VoterSet
from tidelog.server.configuration.config_file import ConfigError
from tidelog.server.configuration.node_config import NodeConfig
from tidelog.testing.inline_world import InlineWorld

StartNode = Callable[..., RunningNode]

UPGRADE, SAFE_DOWNGRADE = 1, 2


def finalized_features(node: RunningNode) -> dict[str, int]:
    request = ApiVersionsRequest(client_software_name="test", client_software_version="1.0")
    answer = node.client().call(request, 4)
    return {each.name: each.max_version_level for each in answer.finalized_features}


def update(
    node: RunningNode, feature: str, level: int, upgrade_type: int, *, validate_only: bool = False
) -> None:
    key = FeatureUpdateKey(feature=feature, max_version_level=level, upgrade_type=upgrade_type)
    request = UpdateFeaturesRequest(feature_updates=[key], validate_only=validate_only)
    answer = node.client().call(request, 2)
    assert (answer.error_code, answer.error_message) == (0, None)


def finalized_level(node: RunningNode, feature: str) -> int:
    return node.call(lambda: node.node.image.finalized_level(feature))


def test_a_level_that_is_changed_is_told_and_kept(start_node: StartNode) -> None:
    node = start_node()
    assert finalized_level(node, "group.version") == 1
    update(node, "group.version", 0, SAFE_DOWNGRADE)
    assert finalized_level(node, "group.version") == 0
    assert "group.version" not in finalized_features(node)
    node.stop()

    again = start_node()
    assert finalized_level(again, "group.version") == 0
    assert "group.version" not in finalized_features(again)
    update(again, "group.version", 1, UPGRADE)
    assert finalized_level(again, "group.version") == 1
    assert finalized_features(again)["group.version"] == 1


def test_a_cluster_can_start_without_the_new_group_protocol(start_node: StartNode) -> None:
    node = start_node({"initial.feature.levels": "group.version=0"})
    assert finalized_level(node, "group.version") == 0
    assert finalized_features(node) == {
        "eligible.leader.replicas.version": 1,
        "kraft.version": 1,
        "metadata.version": 30,
        "transaction.version": 2,
    }


def test_an_unstable_level_needs_a_setting(start_node: StartNode) -> None:
    enabled = {"unstable.feature.versions.enable": "true"}
    node = start_node(enabled)
    assert finalized_level(node, "metadata.version") == 30
    update(node, "metadata.version", 31, UPGRADE)
    assert finalized_features(node)["metadata.version"] == 31
    node.stop()

    assert finalized_level(start_node(enabled), "metadata.version") == 31


def test_a_node_without_the_setting_refuses_an_unstable_level(start_node: StartNode) -> None:
    node = start_node()
    key = FeatureUpdateKey(feature="metadata.version", max_version_level=31, upgrade_type=UPGRADE)
    answer = node.client().call(UpdateFeaturesRequest(feature_updates=[key]), 2)
    assert answer.error_code == ErrorCode.INVALID_UPDATE_VERSION
    node.stop()

    settings = {"unstable.feature.versions.enable": "true", "initial.metadata.version": "31"}
    with pytest.raises(ConfigError, match=r"Unknown metadata.version '31'"):
        NodeConfig({**settings, "unstable.feature.versions.enable": "false"})
    assert NodeConfig(settings).initial_levels["metadata.version"] == 31


def commit(producer: TransactionalProducer, topic: str, value: bytes, level: int) -> None:
    """One transaction in the flow that a client takes which reads this transaction.version."""
    if level < 2:
        assert producer.add(topic) is ErrorCode.NONE
        assert producer.produce(topic, value, version=11) is ErrorCode.NONE
        assert producer.end(version=4).error_code == 0
    else:
        epoch = producer.epoch
        assert producer.produce(topic, value, version=12) is ErrorCode.NONE
        assert producer.end(version=5).error_code == 0
        assert producer.epoch == epoch + 1
    wait_until_stable(producer.wire, topic)


def transaction_record_versions(data: Path) -> list[int]:
    """The versions of the values in the transaction log, in the order of the log."""
    values = [
        record.value
        for segment in sorted(data.glob("__transaction_state-*/*.log"))
        for _, records in decode_batches(segment.read_bytes())
        for record in records
    ]
    return [int.from_bytes(value[:2], "big") for value in values if value is not None]


@pytest.mark.parametrize("level", [0, 1, 2])
def test_the_transaction_version_is_what_clients_read_and_the_log_is_written_in(
    start_node: StartNode, level: int
) -> None:
    node = start_node({"initial.feature.levels": f"transaction.version={level}"})
    assert finalized_features(node).get("transaction.version", 0) == level
    node.create_topic("orders")
    producer = TransactionalProducer(node.client())
    assert producer.init() is ErrorCode.NONE
    commit(producer, "orders", b"a", level)
    commit(producer, "orders", b"b", level)
    assert committed_values(node.client(), "orders") == [b"a", b"b"]
    node.stop()
    assert set(transaction_record_versions(node.data)) == {min(level, 1)}


def test_a_transactional_producer_survives_changes_of_the_transaction_version(
    start_node: StartNode,
) -> None:
    node = start_node()
    node.create_topic("orders")
    producer = TransactionalProducer(node.client())
    assert producer.init() is ErrorCode.NONE
    commit(producer, "orders", b"v2", 2)
    update(node, "transaction.version", 0, SAFE_DOWNGRADE)
    commit(producer, "orders", b"v0", 0)
    # A client that has not yet heard of the change still ends its transactions the new way.
    commit(producer, "orders", b"late", 2)
    node.stop()
    versions = transaction_record_versions(node.data)
    assert versions == sorted(versions, reverse=True)
    assert set(versions) == {0, 1}

    again = start_node()
    assert finalized_level(again, "transaction.version") == 0
    successor = TransactionalProducer(again.client(), producer.transactional_id)
    assert successor.init() is ErrorCode.NONE
    assert successor.epoch > producer.epoch
    update(again, "transaction.version", 2, UPGRADE)
    commit(successor, "orders", b"v2 again", 2)
    assert committed_values(again.client(), "orders") == [b"v2", b"v0", b"late", b"v2 again"]


def test_an_upgrade_past_3_7_brings_the_log_directories_into_the_registration(
    start_node: StartNode,
) -> None:
    """As a broker of Kafka does, which registers again when the cluster knows directories."""
    node = start_node({"initial.metadata.version": "3.3-IV3"})
    before = node.call(lambda: node.node.image.brokers[1])
    assert before.log_dirs == ()
    update(node, "metadata.version", 16, UPGRADE)
    assert node.call(lambda: node.node.image.brokers[1]) is before
    update(node, "metadata.version", 30, UPGRADE)
    node.wait_until(lambda node: bool(node.image.brokers[1].log_dirs))
    after = node.call(lambda: node.node.image.brokers[1])
    assert after == before._replace(log_dirs=after.log_dirs)
    assert len(after.log_dirs) == 1
    node.create_topic("orders")
    partition = node.call(lambda: node.node.image.partition("orders", 0))
    assert partition is not None
    assert partition.directories == after.log_dirs
    node.stop()

    again = start_node()
    assert again.call(lambda: again.node.image.brokers[1].log_dirs) == after.log_dirs


def test_a_quorum_of_an_older_kafka_gets_its_voters_into_the_log(
    start_node: StartNode, tmp_path: Path
) -> None:
    """A directory of a Kafka with static voters is at kraft.version 0."""
    data = tmp_path / "static"
    data.mkdir()
    metadata = MetadataLog.load(data / DIRECTORY_NAME, world=InlineWorld(now_ms=1), node_id=1)
    voters = VoterSet([VoterNode(ReplicaKey(1), ())])
    metadata.join(
        LocalNode(ReplicaKey(1, b"D" * 16), (), "", "", static_voters=voters), QuorumSettings()
    )
    metadata.settle_start()
    metadata.snapshot()
    metadata.close()

    node = start_node(data=data)
    assert "kraft.version" not in finalized_features(node)
    update(node, "kraft.version", 1, UPGRADE, validate_only=True)
    assert "kraft.version" not in finalized_features(node)
    update(node, "kraft.version", 1, UPGRADE)
    assert finalized_features(node)["kraft.version"] == 1
    update(node, "kraft.version", 1, UPGRADE)
    port = node.port
    node.stop()

    again = start_node({"listeners": f"PLAINTEXT://127.0.0.1:{port}"}, data=data)
    assert finalized_features(again)["kraft.version"] == 1
    (voter,) = again.call(lambda: again.node.metadata.quorum.voters)
    assert [each.port for each in voter.endpoints] == [port]
