"""Transactional producers: readers of committed records see all of a transaction or nothing.

Some transactional ids have two instances, which fence each other; some transactions are left open
until the coordinator's timeout ends them. In the end nothing may hold the last stable offset back.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from tidelog.protocol.apis.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
)
from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.topic_partition import TopicPartition
from tidelog.testing.history import Operation, Outcome, check_history
from tidelog.testing.simulation.client import SimulatedClient
from tidelog.testing.simulation.options import Options
from tidelog.testing.simulation.workloads.asking import (
    GROUP,
    RETRIABLE,
    TRANSACTION,
    ask,
    find_coordinator,
)
from tidelog.testing.simulation.workloads.consuming import read_everything
from tidelog.testing.simulation.workloads.fetch_session import draw_consumer
from tidelog.testing.simulation.workloads.producing import IdempotentProducer, init_producer_id
from tidelog.testing.simulation.workloads.topics import create_topics, list_offset
from tidelog.testing.simulation.workloads.transacting import (
    TransactionalId,
    TransactionalProducer,
)
from tidelog.testing.simulation.workloads.workspace import Workspace

_NONE_COMMITTED = -1


class Transactions:
    """Transactional ids, some with rivals, one plain producer among them, and readers."""

    def __init__(self, workspace: Workspace, options: Options) -> None:
        self.workspace = workspace
        self._options = options
        self._ids: list[TransactionalId] = []
        self._last_committed: list[Operation] = []
        self._uncommitted: list[Operation] = []

    @staticmethod
    def is_drawn(options: Options) -> bool:
        return options.transactional_ids > 0

    def start(self) -> None:
        options, workspace = self._options, self.workspace
        admin = workspace.make_client("txn-admin")
        configs = {"segment.bytes": str(options.segment_bytes)}
        admin.start(
            create_topics(admin, workspace, ["transacted"], options.partitions + 1, configs)
        )
        for number in range(options.transactional_ids):
            shared = TransactionalId(
                f"txn-{number}",
                timeout_ms=admin.random.choice((100, 300, 1000)),
                is_v2=admin.random.random() < 0.5,
            )
            self._ids.append(shared)
            for instance in range(admin.random.choice((1, 1, 2))):
                client = workspace.make_client(f"txn-{number}.{instance}")
                producer = TransactionalProducer(
                    client, workspace, shared, hurried_aborts=options.hurried_aborts
                )
                workspace.start_when_ready(client, producer.run)
        if admin.random.random() < 0.5:
            client = workspace.make_client("txn-plain")
            plain = IdempotentProducer(client, workspace, acks=-1)
            workspace.start_when_ready(client, plain.run)
        if admin.random.random() < 0.7:
            client = workspace.make_client("txn-consumer")
            kind = draw_consumer(client, options)
            consumer = kind(client, workspace, read_committed=True)
            workspace.start_when_ready(client, consumer.run)

    def wind_up(self) -> None:
        client = self.workspace.make_client("txn-last")
        client.start(self._look(client))

    async def _look(self, client: SimulatedClient) -> None:
        partitions = self.workspace.partitions
        if self._options.clock_jumps:
            # The deadline of an open transaction may be as far away as the clock has jumped.
            for shared in self._ids:
                await find_coordinator(client, shared.name, TRANSACTION)
                await init_producer_id(client, shared.name, shared.timeout_ms)
        for partition in partitions:
            await self._wait_for_stability(client, partition)
        await read_everything(client, partitions, self._uncommitted, read_committed=False)
        await read_everything(client, partitions, self._last_committed, read_committed=True)
        for shared in self._ids:
            await self._check_offset(client, shared)

    async def _wait_for_stability(self, client: SimulatedClient, partition: TopicPartition) -> None:
        """Nothing is open any more in a partition."""
        while True:
            end_offset = await list_offset(client, partition)
            if await list_offset(client, partition, read_committed=True) == end_offset:
                return
            await client.sleep(0.1)

    async def _check_offset(self, client: SimulatedClient, shared: TransactionalId) -> None:
        """The group's offset is that of the last committed transaction that sent one, or of a
        later one of which nobody knows."""
        if not shared.offsets:
            return
        await find_coordinator(client, shared.group, GROUP)
        topic, index = self.workspace.partitions[0]
        topics = [OffsetFetchRequestTopics(name=topic, partition_indexes=[index])]
        request = OffsetFetchRequest(
            groups=[OffsetFetchRequestGroup(group_id=shared.group, topics=topics)],
            require_stable=True,
        )
        answered = await ask(
            client,
            request,
            OffsetFetchResponse,
            lambda response: (
                response.groups[0].error_code
                or response.groups[0].topics[0].partitions[0].error_code
            ),
            version_max=9,
            retriable=RETRIABLE | {ErrorCode.UNSTABLE_OFFSET_COMMIT},
        )
        assert answered.code is ErrorCode.NONE, f"OffsetFetch: {answered.code.name}"
        offset = answered.response.groups[0].topics[0].partitions[0].committed_offset
        possible = {_NONE_COMMITTED}
        for number, operation in shared.offsets.items():
            if operation.outcome is Outcome.OK:
                possible = {number}
            elif operation.outcome is Outcome.UNKNOWN:
                possible.add(number)
        client.trace(f"{shared.group} is at {offset}")
        if offset not in possible:
            self.workspace.problem(
                client.name, f"{shared.group} is at {offset}, not at one of {sorted(possible)}"
            )

    def failures(self) -> Iterator[str]:
        history = self.workspace.history
        yield from map(str, check_history(history + self._last_committed).anomalies)
        # A reader of uncommitted records may see every transaction.
        uncommitted = [
            replace(each, outcome=Outcome.UNKNOWN) if each.outcome is Outcome.FAILED else each
            for each in history
            if not each.polls
        ]
        yield from map(str, check_history(uncommitted + self._uncommitted).anomalies)
        seen = {
            record.value
            for operation in self._last_committed
            for poll in operation.polls
            for record in poll
        }
        for operation in history:
            values = [send.value for send in operation.sends]
            found = [value for value in values if value in seen]
            if found and len(found) < len(values):
                yield (
                    f"of a transaction of {operation.process} with {values}, only {found} can be "
                    "read as committed"
                )
