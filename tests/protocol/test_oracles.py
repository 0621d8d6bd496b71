"""Other people's codecs read our bytes and write the same: kio and kafka-python.

Both were generated from Kafka's own definitions, so agreement means that names, order, version
ranges, nullability and tags of our schemas are right.
"""

import io
import warnings
from typing import Any

import kafka.protocol.admin
import kafka.protocol.consumer
import kafka.protocol.metadata
import kafka.protocol.producer
import kafka.protocol.sasl
import pytest
from hypothesis import given, settings
from kio.index import UnknownEntity, load_payload_module
from kio.serial import entity_reader, entity_writer
from kio.static.constants import EntityType

from tests.protocol.strategies import TAME, project, structs, versions_of
from tidelog.protocol.registry import DEFINED, messages_of
from tidelog.protocol.schema import Message

KAFKA_PYTHON = (
    kafka.protocol.admin,
    kafka.protocol.consumer,
    kafka.protocol.metadata,
    kafka.protocol.producer,
    kafka.protocol.sasl,
)
MESSAGES = [message for api_key in DEFINED for message in messages_of(api_key)]
every_message = pytest.mark.parametrize("cls", MESSAGES, ids=lambda cls: cls.__name__)


def kio_entity(cls: type[Message], version: int) -> Any:
    """kio's class for a message, None where it has not this version (those before Kafka 4)."""
    try:
        if cls.__name__.endswith("Request"):
            module = load_payload_module(cls.API_KEY, version, EntityType.request)
        else:
            module = load_payload_module(cls.API_KEY, version, EntityType.response)
        return getattr(module, cls.__name__)
    except UnknownEntity:
        return None


@every_message
def test_kio_reads_and_writes_the_same_bytes(cls: type[Message]) -> None:
    entities = {version: kio_entity(cls, version) for version in versions_of(cls)}
    covered = {version: entity for version, entity in entities.items() if entity is not None}
    assert covered

    @settings(max_examples=6)
    @given(structs(cls, TAME))
    def check(message: Message) -> None:
        for version, entity in covered.items():
            encoded = project(message, version).encode(version)
            read, size = entity_reader(entity)(encoded, 0)
            written = io.BytesIO()
            entity_writer(entity)(written, read)
            assert size == len(encoded)
            assert written.getvalue() == encoded

    check()


def kafka_python_class(cls: type[Message]) -> Any:
    for module in KAFKA_PYTHON:
        if found := getattr(module, cls.__name__, None):
            return found
    return None


@every_message
def test_kafka_python_reads_and_writes_the_same_bytes(cls: type[Message]) -> None:
    other = kafka_python_class(cls)
    if other is None:
        pytest.skip("kafka-python does not have this API")
    if cls.__name__ == "ApiVersionsResponse":
        pytest.skip("kafka-python guesses the version of this one from its bytes")

    @settings(max_examples=6)
    @given(structs(cls, TAME))
    def check(message: Message) -> None:
        for version in versions_of(cls):
            if version > other.max_version:
                break
            encoded = project(message, version).encode(version)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                read = other.decode(encoded, version=version)
                read._header = None  # its encoder wants the attribute
                assert read.encode(version=version) == encoded

    check()
