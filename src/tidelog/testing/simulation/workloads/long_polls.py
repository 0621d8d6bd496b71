"""When the faults are over, whoever waits is woken: long polls, and producers that want an answer.

A consumer waits at the end of a partition for longer than anything may take. Then a record is
produced there. The producer must be answered and the consumer woken, both at once.
"""

from __future__ import annotations

from collections.abc import Iterable

from tidelog.protocol.apis.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from tidelog.protocol.apis.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from tidelog.protocol.records import Record, encode_batch
from tidelog.protocol.topic_partition import TopicPartition
from tidelog.server.network.peer_connection import PeerError
from tidelog.testing.simulation.client import SimulatedClient
from tidelog.testing.simulation.simulation import SECOND_US
from tidelog.testing.simulation.workloads.asking import RETRIABLE
from tidelog.testing.simulation.workloads.topics import create_topics, list_offset
from tidelog.testing.simulation.workloads.workspace import Workspace

_ROUNDS = 3
_WAIT_MS_MAX = 4000  # below the time that clients wait for an answer
_WOKEN_S_MAX = 2.5  # a job may still be late from the time of faults
_RETRY_S = 0.05
_PRODUCE_VERSION = 9
_FETCH_VERSION = 11


class LongPolls:
    """Two clients on a partition of their own. Where a leader may lack room, another one may lead
    in the middle of a poll, which ends with that and is asked again."""

    def __init__(self, workspace: Workspace, *, leaders_may_lack_room: bool = False) -> None:
        self.workspace = workspace
        self._leaders_may_lack_room = leaders_may_lack_room

    def start(self) -> None:
        """Nothing as long as there are faults."""

    def wind_up(self) -> None:
        consumer = self.workspace.make_client("poll-consumer")
        producer = self.workspace.make_client("poll-producer")
        consumer.start(self._take_turns(consumer, producer))

    def failures(self) -> Iterable[str]:
        return ()

    async def _take_turns(self, consumer: SimulatedClient, producer: SimulatedClient) -> None:
        workspace = self.workspace
        await create_topics(producer, workspace, ["polled"], 1, {})
        partition = workspace.partitions[0]
        for number in range(_ROUNDS):
            offset = await list_offset(consumer, partition)
            producer.start(self._produce_soon(producer, partition, number))
            began_us = consumer.simulation.now_us
            while True:
                try:
                    answer = await consumer.call(
                        _fetch_request(partition, offset),
                        FetchResponse,
                        version_max=_FETCH_VERSION,
                    )
                except PeerError as error:
                    consumer.problem(f"a long poll got no answer: {error}")
                    return
                row = answer.responses[0].partitions[0]
                waited_s = (consumer.simulation.now_us - began_us) / SECOND_US
                if row.records or waited_s > _WOKEN_S_MAX or not self._leaders_may_lack_room:
                    break
                await consumer.sleep(_RETRY_S)
            consumer.simulation.count("long polls")
            if waited_s > _WOKEN_S_MAX or not row.records:
                consumer.problem(f"a long poll at {offset} was not woken in {waited_s:.3f} s")

    async def _produce_soon(
        self, client: SimulatedClient, partition: TopicPartition, number: int
    ) -> None:
        await client.sleep(client.random.random() * 0.1)
        batch = encode_batch([Record(0, client.host.wall_ms(), None, b"%d" % number)])
        row = PartitionProduceData(index=partition.partition, records=bytes(batch))
        request = ProduceRequest(
            acks=client.random.choice((-1, 1)),
            timeout_ms=_WAIT_MS_MAX,
            topic_data=[TopicProduceData(name=partition.topic, partition_data=[row])],
        )
        began_us = client.simulation.now_us
        while True:
            try:
                answer = await client.call(request, ProduceResponse, version_max=_PRODUCE_VERSION)
            except PeerError as error:
                client.problem(f"a record was not acknowledged: {error}")
                return
            if answer.responses[0].partition_responses[0].error_code not in RETRIABLE:
                break
            # A controller that stood still takes the others for gone when it goes on.
            await client.sleep(_RETRY_S)
        waited_s = (client.simulation.now_us - began_us) / SECOND_US
        if waited_s > _WOKEN_S_MAX:
            client.problem(f"a record was acknowledged after {waited_s:.3f} s")


def _fetch_request(partition: TopicPartition, offset: int) -> FetchRequest:
    row = FetchPartition(
        partition=partition.partition, fetch_offset=offset, partition_max_bytes=10_000
    )
    return FetchRequest(
        max_wait_ms=_WAIT_MS_MAX,
        min_bytes=1,
        topics=[FetchTopic(topic=partition.topic, partitions=[row])],
    )
