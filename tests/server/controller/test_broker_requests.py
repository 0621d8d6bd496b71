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
from tidelog.protocol.apis.assign_replicas_to_dirs import (
    AssignReplicasToDirsRequest,
    AssignReplicasToDirsRequestDirectory,
    AssignReplicasToDirsRequestPartition,
    AssignReplicasToDirsRequestTopic,
)
from tidelog.protocol.apis.broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse
from tidelog.protocol.apis.broker_registration import (
    BrokerRegistrationRequest,
    BrokerRegistrationResponse,
    Feature,
    Listener,
)
from tidelog.protocol.apis.controller_registration import (
    ControllerFeature,
    ControllerListener,
    ControllerRegistrationRequest,
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
            Feature(name="eligible.leader.replicas.version", max_supported_version=1),
            Feature(name="group.version", max_supported_version=1),
            Feature(name="kraft.version", max_supported_version=1),
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


@pytest.mark.parametrize("version", [1, 2])
def test_full_directories_are_told_under_a_tag_of_our_own(version: int) -> None:
    """Kafka gives tags out one after the other; whoever does not know this one passes over it."""
    beat = BrokerHeartbeatRequest(broker_id=2, broker_epoch=7, full_log_dirs=DIRECTORIES)
    told = beat.encode(version)
    assert BrokerHeartbeatRequest.decode(told, version) == beat
    silent = BrokerHeartbeatRequest(broker_id=2, broker_epoch=7).encode(version)
    assert told.startswith(silent[:-1]), "all that Kafka knows comes before it"
    assert told[len(silent) :].startswith(b"\x90\x4e"), "tag 10000"


def test_a_broker_that_leads_nothing_may_shut_down_at_once(node: RunningNode) -> None:
    epoch = register(node)
    heartbeat(node, epoch)
    assert heartbeat(node, epoch, want_shut_down=True).should_shut_down
    assert node.call(lambda: node.node.image.brokers[2].fenced)


def test_another_process_cannot_take_a_living_brokers_place(node: RunningNode) -> None:
    heartbeat(node, register(node))
    assert refused(node, registration(node, b"J" * 16)) is ErrorCode.DUPLICATE_BROKER_REGISTRATION


def test_a_broker_cordons_directories_and_assigns_replicas_to_them(node: RunningNode) -> None:
    topic_id = node.create_topic("orders")
    epoch = register(node)
    heartbeat(node, epoch, cordoned_log_dirs=DIRECTORIES)
    broker = node.call(lambda: node.node.image.brokers[2])
    assert list(broker.cordoned_log_dirs or ()) == DIRECTORIES
    own = node.call(lambda: node.node.image.brokers[1])
    (directory,) = own.log_dirs
    partitions = [
        AssignReplicasToDirsRequestPartition(partition_index=0),
        AssignReplicasToDirsRequestPartition(partition_index=9),
    ]
    topic = AssignReplicasToDirsRequestTopic(topic_id=topic_id, partitions=partitions)
    request = AssignReplicasToDirsRequest(
        broker_id=1,
        broker_epoch=own.epoch,
        directories=[AssignReplicasToDirsRequestDirectory(id=directory, topics=[topic])],
    )
    (answered,) = ask(node, request).directories  # type: ignore[attr-defined]
    assert answered.id == directory
    assert [each.error_code for each in answered.topics[0].partitions] == [
        ErrorCode.NONE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ]


def test_a_controller_registers(node: RunningNode) -> None:
    request = ControllerRegistrationRequest(
        controller_id=3,
        incarnation_id=b"C" * 16,
        listeners=[ControllerListener(name="CONTROLLER", host="there", port=9093)],
        features=[ControllerFeature(name="metadata.version", max_supported_version=30)],
    )
    ask(node, request)
    controller = node.call(lambda: node.node.image.controllers[3])
    assert controller.endpoints[0].port == 9093
    assert controller.features == (("metadata.version", 0, 30),)


def test_a_broker_of_another_cluster_or_epoch_is_refused(node: RunningNode) -> None:
    wrong = registration(node)
    wrong.cluster_id = "another"
    assert refused(node, wrong) is ErrorCode.INCONSISTENT_CLUSTER_ID
    epoch = register(node)
    stale = BrokerHeartbeatRequest(broker_id=2, broker_epoch=epoch - 1)
    assert refused(node, stale) is ErrorCode.STALE_BROKER_EPOCH
    unknown = BrokerHeartbeatRequest(broker_id=7, broker_epoch=epoch)
    assert refused(node, unknown) is ErrorCode.STALE_BROKER_EPOCH
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
