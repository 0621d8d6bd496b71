"""The registry finds every API, and its versions are those of a Kafka 4 broker."""

import pkgutil

import pytest

import tidelog.protocol.apis
from tidelog.protocol.api_keys import ApiKey
from tidelog.protocol.errors import ProtocolError
from tidelog.protocol.registry import (
    DEFINED,
    messages_of,
    module_name,
    request_class,
    response_class,
)

# What a Kafka 4.3 broker or controller advertises, for the APIs that are defined here.
KAFKA_4_VERSIONS = {
    0: (0, 13), 1: (4, 18), 2: (1, 11), 3: (0, 13), 8: (2, 10), 9: (1, 10), 10: (0, 6),
    11: (0, 9), 12: (0, 4), 13: (0, 5), 14: (0, 5), 15: (0, 6), 16: (0, 5), 17: (0, 1),
    18: (0, 4), 19: (2, 7), 20: (1, 6), 21: (0, 2), 22: (0, 5), 23: (2, 4), 24: (0, 5),
    25: (0, 4), 26: (0, 5), 27: (1, 2), 28: (0, 5), 29: (1, 3), 30: (1, 3), 31: (1, 3),
    32: (1, 4), 33: (0, 2), 34: (1, 2), 35: (1, 5), 36: (0, 2), 37: (0, 3), 38: (1, 3),
    39: (1, 2), 40: (1, 2), 41: (1, 3), 42: (0, 2), 43: (0, 2), 44: (0, 1), 45: (0, 1),
    46: (0, 0), 47: (0, 0), 48: (0, 1), 49: (0, 1), 50: (0, 0), 51: (0, 0), 52: (0, 2),
    53: (0, 1), 54: (0, 1), 55: (0, 2), 56: (2, 3), 57: (0, 2), 58: (0, 0), 59: (0, 1),
    60: (0, 2), 61: (0, 0), 62: (0, 4), 63: (0, 2), 64: (0, 0),
    65: (0, 0), 66: (0, 2), 67: (0, 0), 68: (0, 1), 69: (0, 1), 70: (0, 0), 71: (0, 0),
    72: (0, 0), 73: (0, 0), 74: (0, 1), 75: (0, 0), 80: (0, 1), 81: (0, 0), 82: (0, 0),
}  # fmt: skip


@pytest.mark.parametrize("api_key", DEFINED, ids=lambda key: key.name)
def test_an_api_has_both_messages_with_its_key_and_the_same_versions(api_key: ApiKey) -> None:
    request, response = messages_of(api_key)
    assert request.API_KEY == response.API_KEY == api_key
    assert (request.MIN_VERSION, request.MAX_VERSION) == (
        response.MIN_VERSION,
        response.MAX_VERSION,
    )
    assert request.FLEXIBLE_FROM == response.FLEXIBLE_FROM
    assert (request_class(api_key), response_class(api_key)) == (request, response)


@pytest.mark.parametrize("api_key", DEFINED, ids=lambda key: key.name)
def test_an_api_has_all_versions_of_a_kafka_4_broker(api_key: ApiKey) -> None:
    lowest, highest = KAFKA_4_VERSIONS[api_key]
    request = request_class(api_key)
    assert lowest >= request.MIN_VERSION
    assert highest <= request.MAX_VERSION


def test_every_module_of_an_api_is_registered() -> None:
    modules = {module.name for module in pkgutil.iter_modules(tidelog.protocol.apis.__path__)}
    assert modules == {module_name(api_key) for api_key in DEFINED}


def test_two_apis_never_became_flexible() -> None:
    never = {key for key in DEFINED if request_class(key).FLEXIBLE_FROM > 1000}
    assert never == {ApiKey.SASL_HANDSHAKE, ApiKey.OFFSET_DELETE}


def test_a_key_without_messages_is_refused() -> None:
    for api_key in (-1, ApiKey.LEADER_AND_ISR, 9999):
        with pytest.raises(ProtocolError, match="not known"):
            messages_of(api_key)
