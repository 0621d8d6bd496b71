"""Registration, heartbeats, producer ids and in-sync sets, asked as one broker asks another."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.server.running_node import RunningNode
from tidelog.protocol.apis.allocate_producer_ids import AllocateProducerIdsRequest
from tidelog.protocol.apis.alter_partition import (
    AlterPartitionRequest,
    AlterPartitionRequestPartition,
    AlterPartitionRequestTopic,
    BrokerState,
)
from tidelog.protocol.apis.broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse
from tidelog.protocol.apis.broker_registration import (
    BrokerRegistrationRequest,
    BrokerRegistrationResponse,
    Feature,
    Listener,
)
from tidelog.protocol.errors import ApiError, ErrorCode
from tidelog.protocol.schema import Message

DIRECTORIES = [b"E" * 16, b"F" * 16]


@pytest.fixture
def node(tmp_path: Path) -> Iterator[RunningNode]:
    node = RunningNode(tmp_path / "data")
    yield node
    node.stop()


def ask(node: RunningNode, body: Message) -> Message:
    # As bytes it would be the same: what is asked has to be expressible on the wire.
    version = type(body).MAX_VERSION
    sent = type(body).decode(body.encode(version), version)
    answer: Message = node.wait_for(lambda: node.node.controller.ask(sent))
    return answer


def refused(node: RunningNode, body: Message) -> ErrorCode:
    with pytest.raises(ApiError) as caught:
        ask(node, body)
    return caught.value.code


def registration(node: RunningNode, incarnation: bytes = b"I" * 16) -> BrokerRegistrationRequest:
    return BrokerRegistrationRequest(
        broker_id=2,
        cluster_id=node.node.cluster_id,
        incarnation_id=incarnation,
        listeners=[Listener(name="PLAINTEXT", host="there", port=9092)],
        features=[
            Feature(name="metadata.version", min_supported_version=7, max_supported_version=30),
            Feature(name="group.version", max_supported_version=1),
            Feature(name="transaction.version", max_supported_version=2),
        ],
        log_dirs=DIRECTORIES,
    )


def register(node: RunningNode) -> int:
    response = ask(node, registration(node))
    assert isinstance(response, BrokerRegistrationResponse)
    return response.broker_epoch


def heartbeat(node: RunningNode, epoch: int, **fields: object) -> BrokerHeartbeatResponse:
    beat = BrokerHeartbeatRequest(
        broker_id=2,
        broker_epoch=epoch,
        current_metadata_offset=node.call(lambda: node.node.image.offset),
        **fields,  # type: ignore[arg-type]
    )
    response = ask(node, beat)
    assert isinstance(response, BrokerHeartbeatResponse)
    return response


def test_a_broker_registers_fenced_and_serves_when_it_has_caught_up(node: RunningNode) -> None:
    epoch = register(node)
    broker = node.call(lambda: node.node.image.brokers[2])
    assert (broker.epoch, broker.fenced, list(broker.log_dirs)) == (epoch, True, DIRECTORIES)
    assert broker.endpoints[0].host == "there"
    behind = BrokerHeartbeatRequest(
        broker_id=2, broker_epoch=epoch, current_metadata_offset=epoch - 1
    )
    state = ask(node, behind)
    assert isinstance(state, BrokerHeartbeatResponse)
    assert (state.is_caught_up, state.is_fenced) == (False, True)
    state = heartbeat(node, epoch)
    assert (state.is_caught_up, state.is_fenced, state.should_shut_down) == (True, False, False)
    assert not node.call(lambda: node.node.image.brokers[2].fenced)
    assert heartbeat(node, epoch, want_fence=True).is_fenced
    assert node.call(lambda: node.node.image.brokers[2].fenced)


def test_a_broker_says_which_directories_have_failed(node: RunningNode) -> None:
    epoch = register(node)
    assert not heartbeat(node, epoch, offline_log_dirs=DIRECTORIES[:1]).is_fenced
    broker = node.call(lambda: node.node.image.brokers[2])
    assert (list(broker.log_dirs), broker.fenced) == (DIRECTORIES[1:], False)


def test_a_broker_that_wants_to_shut_down_may(node: RunningNode) -> None:
    epoch = register(node)
    heartbeat(node, epoch)
    assert heartbeat(node, epoch, want_shut_down=True).should_shut_down
    assert node.call(lambda: node.node.image.brokers[2].in_controlled_shutdown)


def test_a_broker_of_another_cluster_or_epoch_is_refused(node: RunningNode) -> None:
    wrong = registration(node)
    wrong.cluster_id = "another"
    assert refused(node, wrong) is ErrorCode.INCONSISTENT_CLUSTER_ID
    epoch = register(node)
    stale = BrokerHeartbeatRequest(broker_id=2, broker_epoch=epoch - 1)
    assert refused(node, stale) is ErrorCode.STALE_BROKER_EPOCH
    unknown = BrokerHeartbeatRequest(broker_id=7, broker_epoch=epoch)
    assert refused(node, unknown) is ErrorCode.BROKER_ID_NOT_REGISTERED
    ids = AllocateProducerIdsRequest(broker_id=2, broker_epoch=epoch - 1)
    assert refused(node, ids) is ErrorCode.STALE_BROKER_EPOCH


def test_blocks_of_producer_ids_do_not_overlap(node: RunningNode) -> None:
    epoch = node.node.broker_epoch
    asked = AllocateProducerIdsRequest(broker_id=1, broker_epoch=epoch)
    blocks = [ask(node, asked) for _ in range(3)]
    starts = [block.producer_id_start for block in blocks]  # type: ignore[attr-defined]
    assert starts == [starts[0] + 1000 * number for number in range(3)]


def test_in_sync_sets_are_checked_with_the_epochs_of_their_brokers(node: RunningNode) -> None:
    topic_id = node.create_topic("orders")
    own_epoch = node.node.broker_epoch

    def alter(broker_epoch: int) -> int:
        partition = AlterPartitionRequestPartition(
            partition_index=0,
            new_isr_with_epochs=[BrokerState(broker_id=1, broker_epoch=broker_epoch)],
        )
        topic = AlterPartitionRequestTopic(topic_id=topic_id, partitions=[partition])
        request = AlterPartitionRequest(broker_id=1, broker_epoch=own_epoch, topics=[topic])
        (row,) = ask(node, request).topics[0].partitions  # type: ignore[attr-defined]
        if not row.error_code:
            assert (row.leader_id, row.isr, row.partition_epoch) == (1, [1], 0)
        return int(row.error_code)

    assert (alter(own_epoch), alter(-1)) == (0, 0)
    assert alter(own_epoch - 1) == ErrorCode.INELIGIBLE_REPLICA
