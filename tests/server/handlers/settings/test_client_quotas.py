"""DescribeClientQuotas and AlterClientQuotas, and that quotas throttle."""

from collections.abc import Callable, Iterator

import pytest

from tests.server.handlers.admin_calls import create_topic
from tidelog.protocol.apis import alter_client_quotas as altering
from tidelog.protocol.apis import describe_client_quotas as describing
from tidelog.protocol.apis.metadata import MetadataRequest
from tidelog.protocol.apis.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.records import Record, encode_batch
from tidelog.testing.broker import Broker
from tidelog.testing.wire import WireClient

NewName = Callable[[str], str]
Entity = dict[str, str | None]
EXACT, DEFAULT, ANY = 0, 1, 2


def alter(
    wire: WireClient, entity: Entity, quotas: dict[str, float | None], *, validate: bool = False
) -> int:
    request = altering.AlterClientQuotasRequest(
        entries=[
            altering.EntryData(
                entity=[
                    altering.EntityData(entity_type=type, entity_name=name)
                    for type, name in entity.items()
                ],
                ops=[
                    altering.OpData(key=key, value=value or 0.0, remove=value is None)
                    for key, value in quotas.items()
                ],
            )
        ],
        validate_only=validate,
    )
    (row,) = wire.call(request, 1).entries
    assert {part.entity_type: part.entity_name for part in row.entity} == entity
    return int(row.error_code)


def describe(
    wire: WireClient, *components: tuple[str, int, str | None], strict: bool = False
) -> dict[tuple[tuple[str, str | None], ...], dict[str, float]]:
    request = describing.DescribeClientQuotasRequest(
        components=[
            describing.ComponentData(entity_type=type, match_type=match_type, match=match)
            for type, match_type, match in components
        ],
        strict=strict,
    )
    response = wire.call(request, 1)
    assert response.error_code == 0, response.error_message
    return {
        tuple((part.entity_type, part.entity_name) for part in entry.entity): {
            value.key: value.value for value in entry.values
        }
        for entry in response.entries
    }


@pytest.fixture
def user(wire: WireClient, new_name: NewName) -> Iterator[str]:
    name = new_name("user")
    assert alter(wire, {"user": name}, {"producer_byte_rate": 1000.0}) == 0
    assert alter(wire, {"user": name, "client-id": "app"}, {"consumer_byte_rate": 5.0}) == 0
    yield name
    assert alter(wire, {"user": name}, {"producer_byte_rate": None}) == 0
    assert alter(wire, {"user": name, "client-id": "app"}, {"consumer_byte_rate": None}) == 0


def test_quotas_are_found_by_their_entity(wire: WireClient, user: str) -> None:
    alone = {(("user", user),): {"producer_byte_rate": 1000.0}}
    with_client = {(("client-id", "app"), ("user", user)): {"consumer_byte_rate": 5.0}}
    assert describe(wire, ("user", EXACT, user)) == alone | with_client
    assert describe(wire, ("user", EXACT, user), strict=True) == alone
    assert describe(wire, ("user", EXACT, user), ("client-id", ANY, None)) == with_client
    assert describe(wire, ("user", EXACT, user), ("client-id", DEFAULT, None)) == {}
    assert (("user", user),) in describe(wire)


def test_a_removed_quota_is_gone(wire: WireClient, user: str) -> None:
    assert alter(wire, {"user": user}, {"producer_byte_rate": None}) == 0
    assert describe(wire, ("user", EXACT, user), strict=True) == {}


def test_an_alteration_can_be_tried(wire: WireClient, user: str) -> None:
    assert alter(wire, {"user": user}, {"producer_byte_rate": 7.0}, validate=True) == 0
    found = describe(wire, ("user", EXACT, user), strict=True)
    assert found == {(("user", user),): {"producer_byte_rate": 1000.0}}


@pytest.mark.parametrize(
    ("entity", "quotas"),
    [
        ({"user": "u"}, {"no_such_quota": 1.0}),
        ({"user": "u"}, {"producer_byte_rate": -1.0}),
        ({"user": "u", "ip": "127.0.0.1"}, {"producer_byte_rate": 1.0}),
        ({"planet": "mars"}, {"producer_byte_rate": 1.0}),
        ({"ip": "127.0.0.1"}, {"producer_byte_rate": 1.0}),
    ],
)
def test_wrong_quotas_are_refused(
    wire: WireClient, entity: Entity, quotas: dict[str, float | None]
) -> None:
    assert alter(wire, entity, quotas) == ErrorCode.INVALID_REQUEST


def test_a_wrong_filter_is_refused(wire: WireClient) -> None:
    component = describing.ComponentData(entity_type="user", match_type=EXACT, match=None)
    response = wire.call(describing.DescribeClientQuotasRequest(components=[component]), 1)
    assert response.error_code == ErrorCode.INVALID_REQUEST
    assert response.entries is None


def test_a_producer_above_its_quota_is_told_to_wait(
    wire: WireClient, handlers_broker: Broker, new_name: NewName
) -> None:
    topic, client_id = new_name("topic"), new_name("throttled")
    create_topic(wire, topic)
    assert alter(wire, {"client-id": client_id}, {"producer_byte_rate": 10_000.0}) == 0
    record = Record(offset=0, timestamp=1, key=None, value=bytes(150_000), headers=[])
    request = ProduceRequest(
        acks=1,
        timeout_ms=10_000,
        topic_data=[
            TopicProduceData(
                name=topic,
                partition_data=[
                    PartitionProduceData(index=0, records=bytes(encode_batch([record])))
                ],
            )
        ],
    )
    with WireClient("127.0.0.1", handlers_broker.port, client_id=client_id) as client:
        response = client.call(request, 9)
    assert response.responses[0].partition_responses[0].error_code == 0
    # 150 KB over the ten full windows are 15 KB/s: five more seconds make it 10 KB/s.
    assert 4_000 < response.throttle_time_ms <= 6_000
    with WireClient("127.0.0.1", handlers_broker.port, client_id="other") as client:
        assert client.call(request, 9).throttle_time_ms == 0
    assert alter(wire, {"client-id": client_id}, {"producer_byte_rate": None}) == 0
    assert wire.call(MetadataRequest(topics=[]), 9).throttle_time_ms == 0
