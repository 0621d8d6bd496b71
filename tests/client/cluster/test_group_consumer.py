"""Consumers in classic groups: among themselves, and with members on librdkafka."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from itertools import count

import pytest

from tests.groups.librdkafka_member import Member, eventually
from tidelog.client.cluster import EARLIEST, Cluster, ClusterClient, Groups, Topics
from tidelog.client.cluster.fetcher import FetchSettings
from tidelog.client.cluster.group_consumer import GroupConsumer
from tidelog.client.cluster.membership import MembershipSettings
from tidelog.client.cluster.producer import Producer, ProducerSettings
from tidelog.client.errors import BrokerError, ConsumeError
from tidelog.protocol.topic_partition import TopicPartition
from tidelog.testing import Broker

_numbers = count(1)

PARTITIONS = 4
QUICK = MembershipSettings(session_timeout_s=6.0, heartbeat_interval_s=0.1)


@pytest.fixture
def client(broker: Broker) -> Iterator[ClusterClient]:
    with Cluster(broker.bootstrap_servers) as cluster:
        yield ClusterClient(cluster, 30.0)


@pytest.fixture
def name(client: ClusterClient) -> str:
    """Of a topic and of a group."""
    made = f"members-{next(_numbers)}"
    Topics(client).create([made], partitions=PARTITIONS)
    return made


class Reader:
    """A group consumer in a thread of its own, which commits all that it reads."""

    def __init__(
        self,
        broker: Broker,
        name: str,
        *,
        membership: MembershipSettings = QUICK,
        reset: int | None = EARLIEST,
    ) -> None:
        self._broker = broker
        self._name = name
        self._membership = membership
        self._reset = reset
        self._stop = threading.Event()
        self.assigned: frozenset[int] = frozenset()
        self.read: list[tuple[int, int]] = []
        self.failure: Exception | None = None
        self.pause = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def __enter__(self) -> Reader:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._stop.set()
        self._thread.join(30.0)

    def _run(self) -> None:
        try:
            self._consume()
        except Exception as error:  # noqa: BLE001  the test looks at it
            self.failure = error

    def _consume(self) -> None:
        with (
            Cluster(self._broker.bootstrap_servers) as cluster,
            GroupConsumer(
                ClusterClient(cluster, 30.0),
                self._name,
                [self._name],
                FetchSettings(reset=self._reset),
                self._membership,
            ) as consumer,
        ):
            while not self._stop.is_set():
                while self.pause.is_set() and not self._stop.is_set():
                    time.sleep(0.02)
                done: dict[TopicPartition, int] = {}
                for fetched in consumer.poll(0.05):
                    number = fetched.partition.partition
                    self.read += [(number, record.offset) for record in fetched.records]
                    done[fetched.partition] = fetched.records[-1].offset + 1
                if done:
                    consumer.commit(done)
                self.assigned = frozenset(each.partition for each in consumer.assignment)


def produce(client: ClusterClient, topic: str, per_partition: int) -> None:
    with Producer(client, ProducerSettings()) as producer:
        producer.layout(topic)
        for number in range(PARTITIONS):
            for _ in range(per_partition):
                producer.send(TopicPartition(topic, number), None, b"x")
        producer.flush()


def share_all(*members: Reader | Member) -> Callable[[], bool]:
    """True once every partition has one reader, and every member has its share."""

    def check() -> bool:
        held = [
            set(each.assigned) if isinstance(each, Reader) else each.partitions for each in members
        ]
        share = PARTITIONS // len(members)
        return sum(map(len, held)) == PARTITIONS and all(len(each) == share for each in held)

    return check


def test_one_member_reads_everything_and_goes_on_where_the_group_was(
    broker: Broker, client: ClusterClient, name: str
) -> None:
    produce(client, name, 3)
    everything = {(number, offset) for number in range(PARTITIONS) for offset in range(3)}
    with Reader(broker, name) as reader:
        eventually(lambda: set(reader.read) == everything, "all records")
        produce(client, name, 1)
        eventually(lambda: len(reader.read) == 4 * PARTITIONS, "new records")
    assert Groups(client).committed(name) == {
        TopicPartition(name, number): 4 for number in range(PARTITIONS)
    }
    assert Groups(client).describe(name).state == "Empty", "it has left the group"
    produce(client, name, 1)
    with Reader(broker, name) as reader:
        eventually(lambda: len(reader.read) == PARTITIONS, "what came meanwhile")
    assert {offset for _, offset in reader.read} == {4}


def test_members_share_the_partitions(broker: Broker, client: ClusterClient, name: str) -> None:
    with Reader(broker, name) as first:
        eventually(share_all(first), "all partitions at one member")
        with Reader(broker, name) as second:
            eventually(share_all(first, second), "half of them each")
            produce(client, name, 5)
            eventually(lambda: len(first.read) + len(second.read) == 5 * PARTITIONS, "all records")
            assert set(first.read).isdisjoint(second.read)
        eventually(share_all(first), "all partitions back")
    assert first.failure is second.failure is None


@pytest.mark.parametrize("strategy", ["range", "roundrobin"])
def test_it_works_with_members_on_librdkafka(
    broker: Broker, client: ClusterClient, name: str, strategy: str
) -> None:
    settings = {"partition.assignment.strategy": strategy}
    # Once librdkafka leads the group, once this client does.
    with Member(broker.bootstrap_servers, name, [name], **settings) as theirs:
        eventually(lambda: len(theirs.assigned) == PARTITIONS, "all partitions at one member")
        with Reader(broker, name) as ours:
            eventually(share_all(ours, theirs), "half of them each")
            theirs.close()
            eventually(share_all(ours), "all of them here")
            with Member(broker.bootstrap_servers, name, [name], **settings) as others:
                eventually(share_all(ours, others), "half of them each, again")
                produce(client, name, 5)
                eventually(
                    lambda: len(ours.read) + len(others.read) == 5 * PARTITIONS, "all records"
                )
            eventually(share_all(ours), "all of them here, again")
    assert ours.failure is None


def test_it_works_with_members_of_the_newer_protocol(
    broker: Broker, client: ClusterClient, name: str
) -> None:
    with (
        Member(broker.bootstrap_servers, name, [name], protocol="consumer") as theirs,
        Reader(broker, name) as ours,
    ):
        eventually(share_all(ours, theirs), "half of them each")
        produce(client, name, 5)
        eventually(lambda: len(ours.read) + len(theirs.read) == 5 * PARTITIONS, "all records")
    assert ours.failure is None


def test_members_with_other_assignors_are_named(broker: Broker, name: str) -> None:
    settings = {"partition.assignment.strategy": "cooperative-sticky"}
    with Member(broker.bootstrap_servers, name, [name], **settings) as theirs:
        eventually(lambda: len(theirs.assigned) == PARTITIONS, "all partitions at one member")
        with Reader(broker, name) as ours:
            eventually(lambda: ours.failure is not None, "it is refused")
    assert isinstance(ours.failure, ConsumeError)
    assert "use none of the assignors range, roundrobin" in str(ours.failure)


def test_more_members_than_partitions(broker: Broker, client: ClusterClient, name: str) -> None:
    with ExitStack() as stack:
        readers = [stack.enter_context(Reader(broker, name)) for _ in range(PARTITIONS + 1)]

        def one_each() -> bool:
            sizes = Counter(len(each.assigned) for each in readers)
            return sizes == {1: PARTITIONS, 0: 1}

        eventually(one_each, "one partition each, and none for one")
    assert [each.failure for each in readers] == [None] * len(readers)


def test_a_program_that_is_stuck_loses_its_partitions_and_comes_back(
    broker: Broker, client: ClusterClient, name: str
) -> None:
    stuck_after = MembershipSettings(
        session_timeout_s=6.0, heartbeat_interval_s=0.1, poll_interval_max_s=1.0
    )
    with Reader(broker, name, membership=stuck_after) as first:
        eventually(share_all(first), "all partitions at one member")
        first.pause.set()
        with Reader(broker, name) as second:
            eventually(lambda: len(second.assigned) == PARTITIONS, "all partitions at the other")
            first.pause.clear()
            eventually(share_all(first, second), "half of them each")
    assert first.failure is second.failure is None


def test_a_program_that_is_busy_stays_in_the_group(
    broker: Broker, client: ClusterClient, name: str
) -> None:
    with Reader(broker, name) as reader:
        eventually(share_all(reader), "all partitions")
        reader.pause.set()
        time.sleep(7.0)
        assert Groups(client).describe(name).state == "Stable"


def test_a_broker_that_restarts_is_waited_for() -> None:
    with Broker(mode="process") as broker, Cluster(broker.bootstrap_servers) as cluster:
        client = ClusterClient(cluster, 30.0)
        Topics(client).create(["orders"], partitions=PARTITIONS)
        with Reader(broker, "orders") as reader:
            produce(client, "orders", 2)
            eventually(lambda: len(reader.read) == 2 * PARTITIONS, "records before")
            broker.kill()
            broker.start()
            produce(client, "orders", 1)
            everything = {(number, offset) for number in range(PARTITIONS) for offset in range(3)}
            eventually(lambda: set(reader.read) == everything, "records after")
        assert reader.failure is None


def test_new_partitions_are_read(
    broker: Broker, client: ClusterClient, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tidelog.client.cluster.membership._TOPICS_AGE_S_MAX", 0.2)
    with Reader(broker, name) as reader:
        eventually(share_all(reader), "all partitions")
        Topics(client).add_partitions(name, PARTITIONS + 1)
        eventually(lambda: len(reader.assigned) == PARTITIONS + 1, "the new one too")


def test_a_group_without_offsets_can_be_an_error(broker: Broker, name: str) -> None:
    with Reader(broker, name, reset=None) as reader:
        eventually(lambda: reader.failure is not None, "it fails")
    assert str(reader.failure) == f"the group {name} has no committed offset of {name}-0"


def test_what_the_coordinator_refuses_is_told(broker: Broker, name: str) -> None:
    with Reader(broker, name, membership=MembershipSettings(session_timeout_s=0.1)) as reader:
        eventually(lambda: reader.failure is not None, "it fails")
    assert isinstance(reader.failure, BrokerError)
    assert str(reader.failure) == f"cannot join the group {name}: INVALID_SESSION_TIMEOUT"
