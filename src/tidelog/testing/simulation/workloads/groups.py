"""Groups whose members come, go and crash, with both protocols.

What a member was told about its commits must hold for whoever owns the partition next, and when
the members stand still every partition must come to have exactly one owner.
"""

from __future__ import annotations

from collections.abc import Coroutine, Iterable
from typing import Any

from tidelog.protocol.topic_partition import TopicPartition
from tidelog.testing.simulation.client import SimulatedClient
from tidelog.testing.simulation.options import Options
from tidelog.testing.simulation.simulation import SECOND_US
from tidelog.testing.simulation.workloads.classic_member import ClassicMember
from tidelog.testing.simulation.workloads.consumer_member import ConsumerMember
from tidelog.testing.simulation.workloads.group_offsets import Group, Membership
from tidelog.testing.simulation.workloads.topics import (
    ask_for_partitions,
    create_topics,
    topic_id,
)
from tidelog.testing.simulation.workloads.workspace import Workspace

_TOPICS = ("grouped-0", "grouped-1")
_LIFE_S_MAX = 1.5
_PAUSE_S_MAX = 0.5


class Groups:
    """One group with each protocol that the seed has, on the same topics."""

    def __init__(self, workspace: Workspace, options: Options) -> None:
        self.workspace = workspace
        self._options = options
        self._topic_names: dict[bytes, str] = {}

    @staticmethod
    def is_drawn(options: Options) -> bool:
        return options.classic_members + options.consumer_members > 0

    def start(self) -> None:
        admin = self.workspace.make_client("group-admin")
        admin.start(self._prepare(admin))

    async def _prepare(self, admin: SimulatedClient) -> None:
        options, workspace = self._options, self.workspace
        names = list(_TOPICS[: options.topics])
        await create_topics(admin, workspace, names, options.partitions, {})
        for name in names:
            self._topic_names[await topic_id(admin, name)] = name
        if workspace.is_over:
            return
        # A group whose members are being upgraded, or downgraded, has both kinds.
        is_mixed = admin.random.random() < 0.5
        adds_partition = admin.random.random() < 0.3
        mixed = Group("mixed-group", workspace, is_mixed=True)
        for kind, members in (
            ("classic", options.classic_members),
            ("consumer", options.consumer_members),
        ):
            group = mixed if is_mixed else Group(f"{kind}-group", workspace)
            for number in range(members):
                # A static member that comes back to a classic group takes the old assignment,
                # as in Kafka, and nobody would look for new partitions.
                may_be_static = kind == "consumer" or not adds_partition
                is_static = may_be_static and admin.random.random() < 0.3
                self._occupy(kind, group, number, 0, is_static=is_static)
        if adds_partition:
            await admin.sleep(admin.random.random() * options.duration_s)
            index = options.partitions
            await ask_for_partitions(admin, names[0], index + 1)
            admin.trace(f"{names[0]} has partition {index}")
            workspace.partitions.append(TopicPartition(names[0], index))

    def _occupy(self, kind: str, group: Group, number: int, life: int, *, is_static: bool) -> None:
        """A member begins; some crash later and are replaced."""
        client = self.workspace.make_client(f"{kind}-{number}.{life}")
        instance_id = f"{kind}-{number}" if is_static else None
        membership = Membership(client, instance_id=instance_id)
        group.members.append(membership)
        client.start(self._member(kind, group, membership))
        if client.random.random() < 0.5:
            simulation = client.simulation

            def crash() -> None:
                if self.workspace.is_over:
                    return
                client.trace("crashes")
                group.members.remove(membership)
                client.close()
                pause_us = int(client.random.random() * _PAUSE_S_MAX * SECOND_US)
                simulation.after(pause_us, replace_it)

            def replace_it() -> None:
                if not self.workspace.is_over or not group.members:
                    self._occupy(kind, group, number, life + 1, is_static=is_static)

            simulation.after(int(client.random.random() * _LIFE_S_MAX * SECOND_US), crash)

    def _member(self, kind: str, group: Group, membership: Membership) -> Coroutine[Any, Any, None]:
        if kind == "classic":
            session_timeout_ms = membership.client.random.choice((200, 500, 1000))
            return ClassicMember(group, membership, session_timeout_ms).run()
        return ConsumerMember(group, membership, self._topic_names).run()

    def wind_up(self) -> None:
        """The members have waited until every partition had its owner."""

    def failures(self) -> Iterable[str]:
        return ()
