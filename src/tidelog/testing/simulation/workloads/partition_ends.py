"""Asks again and again where partitions end: what readers were told once is never taken back.

A leader that was deposed and has not heard of it may say less, as in Kafka: answers count by their
leader epoch.
"""

from __future__ import annotations

from tidelog.protocol.apis.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from tidelog.protocol.topic_partition import TopicPartition
from tidelog.server.network.peer_connection import PeerError
from tidelog.testing.simulation.client import SimulatedClient
from tidelog.testing.simulation.workloads.topics import LATEST
from tidelog.testing.simulation.workloads.workspace import Workspace

_REST_S = 0.02


class PartitionEnds:
    """What one client was told of the ends of a workload's partitions."""

    def __init__(self, client: SimulatedClient, workspace: Workspace) -> None:
        self._client = client
        self._workspace = workspace
        self._known: dict[TopicPartition, tuple[int, int]] = {}

    async def run(self) -> None:
        client, workspace = self._client, self._workspace
        while not workspace.is_over:
            partition = client.random.choice(workspace.partitions)
            try:
                answer = await client.call(_request(partition), ListOffsetsResponse)
            except PeerError:
                pass
            else:
                row = answer.topics[0].partitions[0]
                if not row.error_code:
                    self._compare(partition, row.leader_epoch, row.offset)
            await client.sleep(_REST_S * client.random.random())

    def _compare(self, partition: TopicPartition, epoch: int, offset: int) -> None:
        known_epoch, known_offset = self._known.get(partition, (-1, 0))
        if epoch < known_epoch:
            return
        if offset < known_offset:
            self._client.problem(
                f"{partition} ends at {offset} in leader epoch {epoch}, and ended at "
                f"{known_offset} in {known_epoch}"
            )
        self._known[partition] = epoch, offset


def _request(partition: TopicPartition) -> ListOffsetsRequest:
    row = ListOffsetsPartition(partition_index=partition.partition, timestamp=LATEST)
    return ListOffsetsRequest(
        replica_id=-1, topics=[ListOffsetsTopic(name=partition.topic, partitions=[row])]
    )
