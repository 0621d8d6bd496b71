"""Topics made for a workload, and the ends of their partitions."""

from __future__ import annotations

from collections.abc import Mapping

from tidelog.protocol.apis.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
)
from tidelog.protocol.apis.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from tidelog.protocol.apis.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from tidelog.protocol.apis.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
)
from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.topic_partition import TopicPartition
from tidelog.testing.simulation.client import SimulatedClient
from tidelog.testing.simulation.workloads.asking import Answered, ask
from tidelog.testing.simulation.workloads.workspace import Workspace

EARLIEST, LATEST = -2, -1


async def ask_to_create(
    client: SimulatedClient,
    name: str,
    partitions: int,
    configs: Mapping[str, str],
    *,
    replication_factor: int = 1,
) -> Answered[CreateTopicsResponse]:
    """Ask for a topic until it is made or refused. With three replicas or more, two have to be in
    sync for a write."""
    if replication_factor > 2:
        configs = {"min.insync.replicas": "2", **configs}
    topic = CreatableTopic(
        name=name,
        num_partitions=partitions,
        replication_factor=replication_factor,
        configs=[CreatableTopicConfig(name=key, value=value) for key, value in configs.items()],
    )
    return await ask(
        client,
        CreateTopicsRequest(topics=[topic], timeout_ms=5000),
        CreateTopicsResponse,
        lambda response: response.topics[0].error_code,
    )


async def ask_for_partitions(
    client: SimulatedClient, name: str, count: int
) -> Answered[CreatePartitionsResponse]:
    """Ask for more partitions until the topic has them or they are refused."""
    return await ask(
        client,
        CreatePartitionsRequest(
            topics=[CreatePartitionsTopic(name=name, count=count, assignments=None)],
            timeout_ms=5000,
        ),
        CreatePartitionsResponse,
        lambda response: response.results[0].error_code,
    )


async def create_topics(
    client: SimulatedClient,
    workspace: Workspace,
    names: list[str],
    partitions: int,
    configs: Mapping[str, str],
) -> None:
    """Make a workload's topics; its clients begin when the first is there."""
    for name in names:
        answered = await ask_to_create(
            client, name, partitions, configs, replication_factor=workspace.replication_factor
        )
        client.trace(f"created {name}: {answered.code.name}")
        expected = {ErrorCode.NONE}
        if answered.is_repeated:
            expected.add(ErrorCode.TOPIC_ALREADY_EXISTS)
        if answered.code not in expected:
            workspace.problem(client.name, f"CreateTopics of {name}: {answered.code.name}")
        workspace.partitions += [TopicPartition(name, index) for index in range(partitions)]


async def list_offset(
    client: SimulatedClient,
    partition: TopicPartition,
    timestamp: int = LATEST,
    *,
    read_committed: bool = False,
) -> int:
    """The offset at a timestamp, -1 when there is none."""
    row = ListOffsetsPartition(partition_index=partition.partition, timestamp=timestamp)
    request = ListOffsetsRequest(
        replica_id=-1,
        isolation_level=int(read_committed),
        topics=[ListOffsetsTopic(name=partition.topic, partitions=[row])],
    )
    answered = await ask(
        client,
        request,
        ListOffsetsResponse,
        lambda response: response.topics[0].partitions[0].error_code,
    )
    assert answered.code is ErrorCode.NONE, f"ListOffsets of {partition}: {answered.code.name}"
    return answered.response.topics[0].partitions[0].offset


async def topic_id(client: SimulatedClient, name: str) -> bytes:
    """The id of a topic that exists."""
    answered = await ask(
        client,
        MetadataRequest(topics=[MetadataRequestTopic(name=name)], allow_auto_topic_creation=False),
        MetadataResponse,
        lambda response: response.topics[0].error_code,
    )
    assert answered.code is ErrorCode.NONE, f"Metadata of {name}: {answered.code.name}"
    return answered.response.topics[0].topic_id
