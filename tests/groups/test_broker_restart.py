"""Groups through the death of the broker."""

from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient

from tests.groups.conftest import SETTINGS, create_topic, fill
from tests.groups.librdkafka_member import Member, eventually, share_evenly
from tidelog.testing import Broker


@pytest.fixture
def own_broker() -> Iterator[Broker]:
    # Sessions must outlast the time that a slow machine needs to start a broker.
    settings = SETTINGS | {"group.consumer.session.timeout.ms": "40000"}
    with Broker(mode="process", settings=settings) as running:
        yield running


def test_groups_and_offsets_survive_kill_9(own_broker: Broker) -> None:
    bootstrap = own_broker.bootstrap_servers
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 2})
    create_topic(admin, "t", 4)
    fill(bootstrap, "t", 4, 10)
    members = [
        Member(bootstrap, group, ["t"], protocol=protocol, **settings)
        for group, protocol, settings in (
            ("g1", "classic", {"session.timeout.ms": 40_000}),
            ("g2", "consumer", {}),
        )
        for _ in range(2)
    ]
    try:
        for pair in (members[:2], members[2:]):
            eventually(share_evenly(pair, "t", 4), "both members share")
        for group in ("g1", "g2"):
            first = members[0 if group == "g1" else 2]
            held = [TopicPartition(*each, 6) for each in first.assigned]
            first.commit(held)
        revocations = [len(member.revoked) for member in members]

        own_broker.kill()
        own_broker.start()

        fill(bootstrap, "t", 4, 5)
        for pair in (members[:2], members[2:]):
            eventually(
                lambda pair=pair: len({*pair[0].read, *pair[1].read}) == 60,  # type: ignore[misc]
                "the members read on",
            )
        assert [len(member.revoked) for member in members] == revocations, "nobody was moved"
        for group, first in (("g1", members[0]), ("g2", members[2])):
            reader = Consumer({"bootstrap.servers": bootstrap, "group.id": group, "log_level": 2})
            asked = [TopicPartition(*each) for each in first.assigned]
            assert {each.offset for each in reader.committed(asked, 20)} == {6}
            reader.close()
    finally:
        for member in members:
            member.close()
