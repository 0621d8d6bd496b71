"""Random histories of groups: clients that are late, die, come back and misunderstand nothing."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from tests.coordinator.group_driver import FAST, Driver, FakeTopics, Ticket
from tidelog.protocol.errors import ApiError, ErrorCode

TOPIC_SIZES = {"t": 5, "u": 3}
STEPS = settings(max_examples=20, stateful_step_count=30)


@dataclass
class Consumer:
    """A client of the consumer protocol: what it knows and what it reads."""

    name: str
    topics: tuple[str, ...]
    instance_id: str | None = None
    epoch: int = 0
    owned: dict[str, set[int]] = field(default_factory=dict)
    sends_all: bool = False


class ConsumerGroupHistory(RuleBasedStateMachine):
    """Never are two members told to read one partition; a quiet group shares all of them."""

    @initialize(assignor=st.sampled_from([None, "range", "uniform"]))
    def start(self, assignor: str | None) -> None:
        topics = FakeTopics()
        for name, size in TOPIC_SIZES.items():
            topics = topics.with_topic(name, size)
        self.driver = Driver(topics=topics)
        self.assignor = assignor
        self.members: dict[str, Consumer] = {}
        self.count = 0

    def beat(self, member: Consumer, lose_answer: bool = False) -> None:
        # A client that got no answer says everything again, and is told everything again.
        joins = member.epoch == 0 or member.sends_all
        try:
            response = self.driver.consumer(
                member.name,
                member.epoch,
                topics=member.topics if joins else None,
                owned=member.owned,
                instance_id=member.instance_id,
                assignor=self.assignor if joins else None,
                rebalance_ms=30_000 if joins else -1,
            )
        except ApiError as error:
            if error.code not in (ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID):
                raise
            member.epoch, member.owned = 0, {}
            return
        member.sends_all = lose_answer
        if lose_answer:
            return
        member.epoch = response.member_epoch
        assigned = self.driver.assigned(response)
        if assigned is not None:
            member.owned = assigned

    @rule(
        topics=st.sampled_from([("t",), ("u",), ("t", "u")]),
        static=st.booleans(),
    )
    def join(self, topics: tuple[str, ...], static: bool) -> None:
        if len(self.members) >= 5:
            return
        self.count += 1
        name = f"m{self.count}"
        member = Consumer(name, topics, f"i-{name}" if static else None)
        self.members[name] = member
        self.beat(member)

    @precondition(lambda self: self.members)
    @rule(data=st.data(), lose_answer=st.booleans())
    def heartbeat(self, data: st.DataObject, lose_answer: bool) -> None:
        self.beat(self.members[data.draw(st.sampled_from(sorted(self.members)))], lose_answer)

    @precondition(lambda self: self.members)
    @rule(data=st.data())
    def leave(self, data: st.DataObject) -> None:
        member = self.members.pop(data.draw(st.sampled_from(sorted(self.members))))
        try:
            self.driver.consumer(member.name, -1, instance_id=member.instance_id)
        except ApiError as error:
            if error.code not in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.GROUP_ID_NOT_FOUND):
                raise

    @precondition(lambda self: any(m.instance_id for m in self.members.values()))
    @rule(data=st.data())
    def restart_static_member(self, data: st.DataObject) -> None:
        names = sorted(name for name, m in self.members.items() if m.instance_id)
        member = self.members.pop(data.draw(st.sampled_from(names)))
        try:
            self.driver.consumer(member.name, -2, instance_id=member.instance_id)
        except ApiError:
            pass
        self.count += 1
        again = Consumer(f"m{self.count}", member.topics, member.instance_id)
        self.members[again.name] = again
        self.beat(again)

    @precondition(lambda self: self.members)
    @rule(data=st.data())
    def die(self, data: st.DataObject) -> None:
        """Without a word; its session has to run out while the others go on."""
        dead = self.members.pop(data.draw(st.sampled_from(sorted(self.members))))
        for _ in range(10):
            self.driver.advance(5_000)
            for member in self.members.values():
                self.beat(member)
        group = self.driver.shard.groups.consumer("g")
        assert group is not None
        assert dead.name not in group.members

    @rule()
    def restart_coordinator(self) -> None:
        self.driver.restart()

    @rule(name=st.sampled_from(sorted(TOPIC_SIZES)))
    def add_partitions(self, name: str) -> None:
        topic = self.driver.topics.topics_by_name[name]
        if len(topic.partitions) < 9:
            self.driver.set_topics(self.driver.topics.with_topic(name, len(topic.partitions) + 1))

    @precondition(lambda self: self.members)
    @rule()
    def come_to_rest(self) -> None:
        for _ in range(12):
            for member in self.members.values():
                self.beat(member)
        group = self.driver.shard.groups.consumer("g")
        assert group is not None
        assert group.state_name == "Stable"
        read = {
            (name, index)
            for member in self.members.values()
            for name, indexes in member.owned.items()
            for index in indexes
        }
        wanted = {
            (name, index)
            for member in self.members.values()
            for name in member.topics
            for index in self.driver.topics.topics_by_name[name].partitions
        }
        assert read == wanted
        written = len(self.driver.log)
        for member in self.members.values():
            self.beat(member)
        assert len(self.driver.log) == written

    @invariant()
    def nobody_reads_what_another_reads(self) -> None:
        readers: dict[tuple[str, int], str] = {}
        for member in getattr(self, "members", {}).values():
            for name, indexes in member.owned.items():
                for index in indexes:
                    assert (name, index) not in readers, (member.name, readers)
                    readers[name, index] = member.name


@dataclass
class ClassicClient:
    """A client of the classic protocol, which does one thing after the other."""

    instance_id: str | None = None
    member_id: str = ""
    generation: int = -1
    assignment: bytes | None = None
    joining: Ticket | None = None
    syncing: Ticket | None = None
    leads: list[str] | None = None

    @property
    def is_free(self) -> bool:
        return self.joining is None and self.syncing is None


class ClassicGroupHistory(RuleBasedStateMachine):
    """Assignments of one generation never overlap; every request is answered; nobody is lost."""

    @initialize()
    def start(self) -> None:
        self.driver = Driver(FAST)
        self.clients: list[ClassicClient] = []
        self.count = 0

    def collect(self) -> None:
        """Clients read the answers that have come."""
        for client in self.clients:
            if client.joining is not None and not client.joining.waits:
                self.joined(client, client.joining.response)
            if client.syncing is not None and not client.syncing.waits:
                self.synced(client, client.syncing.response)

    def joined(self, client: ClassicClient, response: Any) -> None:
        client.joining = None
        code = response.error_code
        if code == ErrorCode.NONE:
            client.member_id = response.member_id
            client.generation = response.generation_id
            client.assignment = None
            is_leader = response.leader == response.member_id and not response.skip_assignment
            client.leads = [m.member_id for m in response.members] if is_leader else None
        elif code == ErrorCode.MEMBER_ID_REQUIRED:
            client.member_id = response.member_id
        elif code in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID):
            client.member_id, client.generation, client.assignment = "", -1, None
        else:
            assert code == ErrorCode.REBALANCE_IN_PROGRESS

    def synced(self, client: ClassicClient, response: Any) -> None:
        client.syncing = None
        code = response.error_code
        if code == ErrorCode.NONE:
            client.assignment = response.assignment
        else:
            assert code in (
                ErrorCode.REBALANCE_IN_PROGRESS,
                ErrorCode.UNKNOWN_MEMBER_ID,
                ErrorCode.ILLEGAL_GENERATION,
                ErrorCode.FENCED_INSTANCE_ID,
            )
            client.generation, client.assignment = -1, None
            if code in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID):
                client.member_id = ""

    def step(self, client: ClassicClient) -> None:
        """What the client would do next."""
        self.collect()
        if not client.is_free:
            return
        if client.generation < 0:
            client.joining = self.driver.join(
                member_id=client.member_id, instance_id=client.instance_id
            )
        elif client.assignment is None:
            assignments = {m: f"{client.generation}:{m}".encode() for m in client.leads or []}
            client.syncing = self.driver.sync(
                client.member_id,
                client.generation,
                assignments,
                instance_id=client.instance_id,
            )
        else:
            code = self.driver.heartbeat(
                client.member_id, client.generation, instance_id=client.instance_id
            )
            if code != ErrorCode.NONE:
                client.generation, client.assignment = -1, None
                if code in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID):
                    client.member_id = ""
        self.collect()

    @rule(static=st.booleans())
    def new_client(self, static: bool) -> None:
        if len(self.clients) < 6:
            self.count += 1
            self.clients.append(ClassicClient(f"i{self.count}" if static else None))
            self.step(self.clients[-1])

    @precondition(lambda self: self.clients)
    @rule(data=st.data())
    def go_on(self, data: st.DataObject) -> None:
        self.step(self.clients[data.draw(st.integers(0, len(self.clients) - 1))])

    @precondition(lambda self: self.clients)
    @rule(data=st.data())
    def leave(self, data: st.DataObject) -> None:
        client = self.clients[data.draw(st.integers(0, len(self.clients) - 1))]
        self.collect()
        if client.is_free and client.instance_id is None and client.member_id:
            self.clients.remove(client)
            assert self.driver.leave(client.member_id)[0] in (
                ErrorCode.NONE,
                ErrorCode.UNKNOWN_MEMBER_ID,
            )
            self.collect()

    @precondition(lambda self: any(c.instance_id for c in self.clients))
    @rule(data=st.data())
    def restart_static_client(self, data: st.DataObject) -> None:
        places = [i for i, c in enumerate(self.clients) if c.instance_id]
        place = data.draw(st.sampled_from(places))
        self.clients[place] = ClassicClient(self.clients[place].instance_id)
        self.step(self.clients[place])

    @precondition(lambda self: self.clients)
    @rule(data=st.data())
    def die(self, data: st.DataObject) -> None:
        del self.clients[data.draw(st.integers(0, len(self.clients) - 1))]

    @rule()
    def restart_coordinator(self) -> None:
        self.collect()
        for reply in self.driver.shard.unload():
            reply.ticket.resolve(reply.response)
        for client in self.clients:
            for ticket in (client.joining, client.syncing):
                assert ticket is None or not ticket.waits, "a request was left without an answer"
            client.joining = client.syncing = None
            if client.assignment is None:
                client.generation = -1
        self.driver.restart()

    @precondition(lambda self: self.clients)
    @rule()
    def come_to_rest(self) -> None:
        # The dead leave their sessions and rebalances behind within this time.
        for _ in range(15):
            self.driver.advance(5_000)
            for client in self.clients:
                self.step(client)
        for _ in range(12):
            for client in self.clients:
                self.step(client)
            self.driver.advance(10)
        described = self.driver.shard.describe("g", 6)
        alive = {client.member_id for client in self.clients}
        assert described.group_state == "Stable", described
        assert {m.member_id for m in described.members} == alive
        (generation,) = {client.generation for client in self.clients}
        for client in self.clients:
            assert client.assignment is not None
            assert client.assignment.split(b":")[0] == str(generation).encode()
        assert len({client.assignment for client in self.clients}) == len(self.clients)


ConsumerGroupHistory.TestCase.settings = STEPS
ClassicGroupHistory.TestCase.settings = STEPS
test_consumer_group_histories = ConsumerGroupHistory.TestCase
test_classic_group_histories = ClassicGroupHistory.TestCase
