"""What the simulator has found wrong with the node, each as short as it can be told."""

from __future__ import annotations

import errno
from collections.abc import Coroutine
from typing import Any

import pytest

from tidelog.cluster.metadata.records.settings import ProducerIdsRecord
from tidelog.coordinator.transaction_shard import WriteMarkers
from tidelog.promise import Promise
from tidelog.protocol.apis.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
)
from tidelog.protocol.apis.delete_topics import (
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from tidelog.protocol.apis.end_txn import EndTxnRequest, EndTxnResponse
from tidelog.protocol.apis.heartbeat import HeartbeatRequest, HeartbeatResponse
from tidelog.protocol.apis.join_group import (
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
)
from tidelog.protocol.apis.produce import ProduceResponse
from tidelog.protocol.apis.sync_group import SyncGroupRequest, SyncGroupResponse
from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.topic_partition import TopicPartition
from tidelog.testing.simulation.client import SimulatedClient
from tidelog.testing.simulation.host import HostFaults
from tidelog.testing.simulation.network import Network
from tidelog.testing.simulation.node import SimulatedNode
from tidelog.testing.simulation.simulation import SECOND_US, Simulation
from tidelog.testing.simulation.workloads.asking import GROUP, TRANSACTION, find_coordinator
from tidelog.testing.simulation.workloads.consuming import Reader
from tidelog.testing.simulation.workloads.plain_sends import plain_batch, produce_request
from tidelog.testing.simulation.workloads.producing import init_producer_id
from tidelog.testing.simulation.workloads.topics import ask_to_create, create_topics
from tidelog.testing.simulation.workloads.workspace import Workspace


class Stage:
    """A node and a client without faults."""

    def __init__(self, seed: int = 1, settings: dict[str, str] | None = None) -> None:
        self.simulation = Simulation(seed)
        network = Network(self.simulation)
        self.node = SimulatedNode(self.simulation, network, "node-1", settings=settings)
        assert self.node.start()
        self.client = SimulatedClient(self.simulation, network, "client", self.node.address)

    def run(self, work: Coroutine[Any, Any, None], limit_s: int = 60) -> None:
        task = self.client.start(work)
        deadline_us = self.simulation.now_us + limit_s * SECOND_US
        self.simulation.run_until(deadline_us, unless=lambda: task.is_done)
        if task.error is not None:
            raise task.error
        assert task.is_done
        assert not self.node.bugs


async def join_group(client: SimulatedClient, session_timeout_ms: int) -> HeartbeatRequest:
    """Become the only member of a group; returns its heartbeat."""
    await find_coordinator(client, "g", GROUP)
    joined = await client.call(
        JoinGroupRequest(
            group_id="g",
            session_timeout_ms=session_timeout_ms,
            rebalance_timeout_ms=session_timeout_ms,
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol(name="range", metadata=b"")],
        ),
        JoinGroupResponse,
        version_max=3,
    )
    synced = await client.call(
        SyncGroupRequest(group_id="g", generation_id=1, member_id=joined.member_id),
        SyncGroupResponse,
        version_max=4,
    )
    assert synced.error_code == ErrorCode.NONE
    return HeartbeatRequest(group_id="g", generation_id=1, member_id=joined.member_id)


def test_a_session_ends_in_time_though_the_clock_was_set_back() -> None:
    stage = Stage()
    client = stage.client

    async def outlive_a_session() -> None:
        heartbeat = await join_group(client, session_timeout_ms=500)
        stage.node.host.clock_skew_ms -= 1_000_000
        await client.sleep(0.6)
        answer = await client.call(heartbeat, HeartbeatResponse)
        assert answer.error_code == ErrorCode.UNKNOWN_MEMBER_ID

    stage.run(outlive_a_session())


def test_a_session_goes_on_though_the_clock_is_set_forward() -> None:
    stage = Stage()
    client = stage.client

    async def stay() -> None:
        heartbeat = await join_group(client, session_timeout_ms=500)
        for _ in range(3):
            stage.node.host.clock_skew_ms += 1_000_000
            await client.sleep(0.3)
            answer = await client.call(heartbeat, HeartbeatResponse)
            assert answer.error_code == ErrorCode.NONE

    stage.run(stay())


@pytest.mark.parametrize("seed", range(15, 20))
def test_the_node_starts_after_a_power_cut_behind_the_deletion_of_a_topic(seed: int) -> None:
    """The old name of its folder came back, and of its files all but the one with its id."""
    stage = Stage(seed)
    client = stage.client

    async def make_and_delete() -> None:
        await ask_to_create(client, "t", 1, {})
        batches = {TopicPartition("t", 0): plain_batch(client, [b"value"])}
        await client.call(produce_request(-1, batches), ProduceResponse, version_max=12)
        await client.sleep(0.1)
        request = DeleteTopicsRequest(topics=[DeleteTopicState(name="t")], timeout_ms=1000)
        await client.call(request, DeleteTopicsResponse)
        await client.sleep(1)

    stage.run(make_and_delete())
    stage.node.cut_power()
    assert stage.node.start(), stage.node.start_error


@pytest.mark.parametrize("seed", [23, 57])
def test_the_node_starts_after_a_power_cut_behind_the_deletion_of_a_new_topic(seed: int) -> None:
    """The id of the deleted topic had not reached the disk, and the next has its name."""
    stage = Stage(seed)
    client = stage.client
    stage.node.host.faults = HostFaults(late_jobs=0.3)

    async def make_again() -> None:
        await ask_to_create(client, "t", 1, {})
        batches = {TopicPartition("t", 0): plain_batch(client, [b"value"])}
        await client.call(produce_request(-1, batches), ProduceResponse, version_max=12)
        request = DeleteTopicsRequest(topics=[DeleteTopicState(name="t")], timeout_ms=1000)
        await client.call(request, DeleteTopicsResponse)
        await ask_to_create(client, "t", 1, {})

    stage.run(make_again())
    stage.node.cut_power()
    assert stage.node.start(), stage.node.start_error


def test_the_node_starts_after_a_power_cut_when_a_snapshot_came_before_the_end_of_a_deletion() -> (
    None
):
    """The removal of the topic was nowhere, and its records looked as if the metadata had lost
    them."""
    stage = Stage()
    client, node = stage.client, stage.node.node
    assert node is not None

    async def delete_and_snapshot() -> None:
        await ask_to_create(client, "t", 1, {})
        batches = {TopicPartition("t", 0): plain_batch(client, [b"value"])}
        await client.call(produce_request(-1, batches), ProduceResponse, version_max=12)
        await client.sleep(1)
        stage.node.host.faults = HostFaults(late_jobs=1.0)
        request = DeleteTopicsRequest(topics=[DeleteTopicState(name="t")], timeout_ms=1000)
        await client.call(request, DeleteTopicsResponse)
        # The deletion of the files is late; the metadata is not.
        stage.node.host.faults = HostFaults()
        await settled(node.metadata.snapshot())
        await settled(node.metadata.propose([ProducerIdsRecord(next_producer_id=1000)]).committed)
        await settled(node.metadata.snapshot())
        assert node.store.is_deleting

    async def settled(promise: Promise[Any]) -> None:
        while not promise.is_done:
            await client.sleep(0.0001)
        promise.result()

    stage.run(delete_and_snapshot())
    stage.node.cut_power()
    assert stage.node.start(), stage.node.start_error


def test_a_partition_that_had_no_room_is_made_when_there_is_some() -> None:
    stage = Stage()
    client, disk = stage.client, stage.node.disk
    workspace = Workspace(lambda name: client)

    async def wait_for_room() -> None:
        disk.fail("/data/0/late-0", error=errno.ENOSPC)
        disk.fail("/data/late-0", error=errno.ENOSPC)
        await create_topics(client, workspace, ["late"], 1, {})
        (partition,) = workspace.partitions
        reader = Reader(client, partition, read_committed=False)
        assert await reader.poll(max_wait_ms=0) is None  # unknown
        disk.heal()
        await client.sleep(2)
        assert await reader.poll(max_wait_ms=0) == []

    stage.run(wait_for_room())


def test_a_transaction_is_completed_when_a_full_disk_has_room_again() -> None:
    """Its markers are written, and only the record that says so finds no room."""
    stage = Stage()
    stage.run(_fill_disk_between_commit_and_completion(stage))


async def _fill_disk_between_commit_and_completion(stage: Stage) -> None:
    client, disk = stage.client, stage.node.disk
    node = stage.node.node
    assert node is not None
    workspace = Workspace(lambda name: client)
    await create_topics(client, workspace, ["t"], 1, {})
    await find_coordinator(client, "id", TRANSACTION)
    identity = await init_producer_id(client, "id", 60_000)

    async def add_partition() -> ErrorCode:
        added = await client.call(
            AddPartitionsToTxnRequest(
                v3_and_below_transactional_id="id",
                v3_and_below_producer_id=identity.producer_id,
                v3_and_below_producer_epoch=identity.epoch,
                v3_and_below_topics=[AddPartitionsToTxnTopic(name="t", partitions=[0])],
            ),
            AddPartitionsToTxnResponse,
            version_max=3,
        )
        (topic,) = added.results_by_topic_v3_and_below
        return ErrorCode(topic.results_by_partition[0].partition_error_code)

    write_markers = node.transactions.markers.write

    def write_and_fill(markers: WriteMarkers, index: int, coordinator_epoch: int) -> Promise[None]:
        def fill(_: None) -> None:
            disk.space_bytes = disk.used_bytes

        return write_markers(markers, index, coordinator_epoch).then(fill)

    assert await add_partition() is ErrorCode.NONE
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(node.transactions.markers, "write", write_and_fill)
        ended = await client.call(
            EndTxnRequest(
                transactional_id="id",
                producer_id=identity.producer_id,
                producer_epoch=identity.epoch,
                committed=True,
            ),
            EndTxnResponse,
            version_max=3,
        )
        assert ended.error_code == ErrorCode.NONE
        assert await add_partition() is ErrorCode.CONCURRENT_TRANSACTIONS
    disk.space_bytes = None
    await client.sleep(2)
    assert await add_partition() is ErrorCode.NONE
