"""One topic that is created, changed, deleted and created again, and what is known of it."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any

from tidelog.protocol.apis.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
)
from tidelog.protocol.apis.delete_topics import (
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from tidelog.protocol.apis.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
)
from tidelog.protocol.apis.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from tidelog.protocol.apis.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
)
from tidelog.protocol.apis.produce import ProduceResponse
from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.topic_partition import TopicPartition
from tidelog.server.network.peer_connection import PeerError
from tidelog.testing.simulation.client import SimulatedClient
from tidelog.testing.simulation.workloads.asking import RETRIABLE, ask
from tidelog.testing.simulation.workloads.consuming import Reader, ReadError
from tidelog.testing.simulation.workloads.plain_sends import plain_batch, produce_request
from tidelog.testing.simulation.workloads.topics import (
    EARLIEST,
    ask_for_partitions,
    ask_to_create,
    list_offset,
)
from tidelog.testing.simulation.workloads.workspace import Workspace

_TOPIC_RESOURCE = 2
_SET = 0
_PARTITIONS_MAX = 4
_TOLERANT = RETRIABLE - {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
_SETTINGS = (
    ("segment.bytes", ("1000", "100000")),
    ("retention.ms", ("50", "604800000")),
    ("retention.bytes", ("1000", "-1")),
    ("durability", ("page-cache", "fsync")),
)


@dataclass(slots=True)
class _Partition:
    """What a partition of the topic as it is now must hold."""

    records: dict[int, bytes] = field(default_factory=dict)
    """Acknowledged, by offset."""
    start_offset: int = 0


@dataclass(slots=True)
class _Topic:
    """The topic between its creation and its deletion."""

    topic_id: bytes
    partitions: list[_Partition]
    configs: dict[str, str] = field(default_factory=dict)
    values: set[bytes] = field(default_factory=set)
    """Everything that was sent to it."""
    may_expire: bool = False
    may_lose: bool = False


class ChangingTopic:
    """The only client that changes a topic: it knows how it must be."""

    def __init__(
        self,
        client: SimulatedClient,
        workspace: Workspace,
        name: str,
        *,
        loses_power: bool,
        is_killed: bool,
    ) -> None:
        self.name = name
        self.others_values: set[bytes] = set()
        """Sent by others, who do not know which topic of this name they meet."""
        self._client = client
        self._workspace = workspace
        self._loses_power = loses_power
        self._ends_badly = loses_power or is_killed
        self._topic: _Topic | None = None

    async def run(self) -> None:
        changes: list[tuple[int, Callable[[_Topic], Coroutine[Any, Any, None]]]] = [
            (8, self._send),
            (2, self._add_partitions),
            (3, self._set_config),
            (2, self._delete_records),
            (1, self._delete),
            (2, self.verify),
        ]
        weights = [weight for weight, _ in changes]
        while not self._workspace.is_over:
            if self._topic is None:
                await self._create()
            else:
                ((_, change),) = self._client.random.choices(changes, weights)
                await change(self._topic)
            await self._client.sleep(self._client.random.random() * 0.03)

    async def look(self) -> None:
        """In the end: the topic is as it must be, or is not there."""
        if self._topic is not None:
            await self.verify(self._topic)
            return
        code, _ = await self._metadata(retriable=_TOLERANT)
        if code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            self._problem(f"was deleted, and Metadata says {code.name}")

    # Changes

    async def _create(self) -> None:
        partitions = self._client.random.randint(1, 2)
        answered = await ask_to_create(
            self._client,
            self.name,
            partitions,
            {},
            replication_factor=self._workspace.replication_factor,
        )
        self._client.trace(f"created {self.name}: {answered.code.name}")
        if not self._is_done(
            answered.code, answered.is_repeated, ErrorCode.TOPIC_ALREADY_EXISTS, "CreateTopics"
        ):
            return
        _, row = await self._metadata()
        self._topic = _Topic(row.topics[0].topic_id, [_Partition() for _ in range(partitions)])

    async def _delete(self, topic: _Topic) -> None:
        request = DeleteTopicsRequest(
            topics=[DeleteTopicState(name=self.name)], topic_names=[self.name], timeout_ms=5000
        )
        answered = await ask(
            self._client,
            request,
            DeleteTopicsResponse,
            lambda response: response.responses[0].error_code,
            version_max=self._client.random.randint(1, 6),
            retriable=_TOLERANT,
        )
        self._client.trace(f"deleted {self.name}: {answered.code.name}")
        if self._is_done(
            answered.code,
            answered.is_repeated,
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            "DeleteTopics",
        ):
            self._topic = None

    async def _add_partitions(self, topic: _Topic) -> None:
        count = len(topic.partitions) + 1
        if count > _PARTITIONS_MAX:
            return
        answered = await ask_for_partitions(self._client, self.name, count)
        self._client.trace(f"gave {self.name} partition {count - 1}: {answered.code.name}")
        if self._is_done(
            answered.code, answered.is_repeated, ErrorCode.INVALID_PARTITIONS, "CreatePartitions"
        ):
            topic.partitions.append(_Partition())

    async def _set_config(self, topic: _Topic) -> None:
        name, values = self._client.random.choice(_SETTINGS)
        value = self._client.random.choice(values)
        # From the moment of the request on, the setting may hold.
        topic.may_expire |= name.startswith("retention")
        topic.may_lose |= name == "durability" and self._loses_power
        resource = AlterConfigsResource(
            resource_type=_TOPIC_RESOURCE,
            resource_name=self.name,
            configs=[AlterableConfig(name=name, config_operation=_SET, value=value)],
        )
        answered = await ask(
            self._client,
            IncrementalAlterConfigsRequest(resources=[resource]),
            IncrementalAlterConfigsResponse,
            lambda response: response.responses[0].error_code,
            retriable=_TOLERANT,
        )
        self._client.trace(f"set {name}={value} of {self.name}: {answered.code.name}")
        if self._is_done(answered.code, False, ErrorCode.NONE, "IncrementalAlterConfigs"):
            topic.configs[name] = value

    async def _send(self, topic: _Topic) -> None:
        client, workspace = self._client, self._workspace
        index = client.random.randrange(len(topic.partitions))
        values = [workspace.next_value() for _ in range(client.random.randint(1, 4))]
        topic.values.update(values)
        batches = {TopicPartition(self.name, index): plain_batch(client, values)}
        try:
            answer = await client.call(
                produce_request(-1, batches), ProduceResponse, version_max=12
            )
        except PeerError as error:
            client.trace(f"produce to {self.name}-{index}: {error}")
            return
        row = answer.responses[0].partition_responses[0]
        code = ErrorCode(row.error_code)
        client.trace(f"produced to {self.name}-{index}: {code.name} at {row.base_offset}")
        if code in RETRIABLE:
            return
        if self._is_done(code, False, ErrorCode.NONE, f"Produce to {index}"):
            for place, value in enumerate(values):
                topic.partitions[index].records[row.base_offset + place] = value

    async def _delete_records(self, topic: _Topic) -> None:
        index = self._client.random.randrange(len(topic.partitions))
        partition = TopicPartition(self.name, index)
        start_offset = await list_offset(self._client, partition, EARLIEST)
        end_offset = await list_offset(self._client, partition)
        offset = self._client.random.randint(start_offset, end_offset)
        row = DeleteRecordsPartition(partition_index=index, offset=offset)
        request = DeleteRecordsRequest(
            topics=[DeleteRecordsTopic(name=self.name, partitions=[row])], timeout_ms=5000
        )
        answered = await ask(
            self._client,
            request,
            DeleteRecordsResponse,
            lambda response: response.topics[0].partitions[0].error_code,
        )
        self._client.trace(f"deleted records of {partition} below {offset}: {answered.code.name}")
        if answered.code is ErrorCode.OFFSET_OUT_OF_RANGE and (topic.may_lose or topic.may_expire):
            return
        if self._is_done(answered.code, False, ErrorCode.NONE, "DeleteRecords"):
            known = topic.partitions[index]
            known.start_offset = max(known.start_offset, offset)

    # What must hold

    async def verify(self, topic: _Topic) -> None:
        """The topic is as it was acknowledged."""
        _, answer = await self._metadata()
        row = answer.topics[0]
        if row.topic_id != topic.topic_id:
            self._problem(f"has the id {row.topic_id.hex()}, not {topic.topic_id.hex()}")
        if len(row.partitions) != len(topic.partitions):
            self._problem(f"has {len(row.partitions)} partitions, not {len(topic.partitions)}")
            return
        await self._verify_configs(topic)
        for index, partition in enumerate(topic.partitions):
            await self._verify_records(topic, TopicPartition(self.name, index), partition)

    async def _verify_configs(self, topic: _Topic) -> None:
        resource = DescribeConfigsResource(
            resource_type=_TOPIC_RESOURCE, resource_name=self.name, configuration_keys=None
        )
        answered = await ask(
            self._client,
            DescribeConfigsRequest(resources=[resource]),
            DescribeConfigsResponse,
            lambda response: response.results[0].error_code,
        )
        told = {row.name: row.value for row in answered.response.results[0].configs}
        for name, value in topic.configs.items():
            if told.get(name) != value:
                self._problem(f"has {name}={told.get(name)}, and {value} was acknowledged")

    async def _verify_records(
        self, topic: _Topic, partition: TopicPartition, known: _Partition
    ) -> None:
        expected = dict(known.records)
        start_offset = await list_offset(self._client, partition, EARLIEST)
        if start_offset < known.start_offset:
            # As in Kafka, where a log starts is written down now and then and at a clean end.
            if not self._ends_badly:
                self._problem(
                    f"-{partition.partition} begins at {start_offset}, and records below "
                    f"{known.start_offset} were deleted"
                )
            known.start_offset = start_offset
        if start_offset > known.start_offset and not topic.may_expire:
            self._problem(
                f"-{partition.partition} begins at {start_offset}, not {known.start_offset}"
            )
        found = await self._read(topic, partition, start_offset)
        if found is None:
            return
        for value in found.values():
            if value not in topic.values and value not in self.others_values:
                self._problem(f"-{partition.partition} has {value!r}, which was not sent to it")
        if topic.may_lose:
            return
        for offset, value in expected.items():
            if offset >= start_offset and found.get(offset) != value:
                self._problem(
                    f"-{partition.partition} has {found.get(offset)!r} at {offset}, and "
                    f"{value!r} was acknowledged there"
                )

    async def _read(
        self, topic: _Topic, partition: TopicPartition, start_offset: int
    ) -> dict[int, bytes] | None:
        """Everything in a partition; None when records expired meanwhile."""
        reader = Reader(self._client, partition, read_committed=False)
        reader.position = start_offset
        found: dict[int, bytes] = {}
        while True:
            try:
                records = await reader.poll_records(max_wait_ms=0)
            except ReadError as error:
                if error.code is ErrorCode.OFFSET_OUT_OF_RANGE and (
                    topic.may_expire or topic.may_lose
                ):
                    return None
                raise
            if records is None:
                await self._client.sleep(0.05)
                continue
            found.update((each.offset, bytes(each.value or b"")) for each in records)
            if reader.position >= reader.end_offset:
                return found

    async def _metadata(
        self, retriable: frozenset[ErrorCode] = RETRIABLE
    ) -> tuple[ErrorCode, MetadataResponse]:
        answered = await ask(
            self._client,
            MetadataRequest(
                topics=[MetadataRequestTopic(name=self.name)], allow_auto_topic_creation=False
            ),
            MetadataResponse,
            lambda response: response.topics[0].error_code,
            retriable=retriable,
        )
        return answered.code, answered.response

    def _is_done(
        self, code: ErrorCode, is_repeated: bool, done_before: ErrorCode, what: str
    ) -> bool:
        if code is ErrorCode.NONE or (is_repeated and code is done_before):
            return True
        self._problem(f"{what}: {code.name}")
        return False

    def _problem(self, what: str) -> None:
        self._workspace.problem(self._client.name, f"{self.name} {what}")
