"""Every declared message, at every version: what goes in comes out, and nonsense is refused."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.protocol.strategies import project, structs, versions_of
from tidelog.protocol.control_records import (
    KRaftVersionRecord,
    LeaderChangeMessage,
    SnapshotFooterRecord,
    SnapshotHeaderRecord,
    VotersRecord,
)
from tidelog.protocol.errors import ProtocolError
from tidelog.protocol.registry import DEFINED, messages_of
from tidelog.protocol.schema import Message

MESSAGES: list[type[Message]] = [
    *(message for api_key in DEFINED for message in messages_of(api_key)),
    LeaderChangeMessage,
    SnapshotHeaderRecord,
    SnapshotFooterRecord,
    KRaftVersionRecord,
    VotersRecord,
]
every_message = pytest.mark.parametrize("cls", MESSAGES, ids=lambda cls: cls.__name__)


@every_message
def test_a_message_survives_a_round_trip_at_every_version(cls: type[Message]) -> None:
    @settings(max_examples=8)
    @given(structs(cls))
    def check(message: Message) -> None:
        for version in versions_of(cls):
            expected = project(message, version)
            encoded = expected.encode(version)
            decoded = cls.decode(encoded, version)
            assert decoded == expected
            # What a message holds beyond its version is left out.
            assert decoded.encode(version) == encoded

    check()


@every_message
def test_a_message_is_found_inside_a_larger_buffer(cls: type[Message]) -> None:
    for version in versions_of(cls):
        encoded = cls().encode(version)
        framed = memoryview(b"header" + encoded)
        assert cls.decode(framed, version, 6) == cls.decode(encoded, version)
        message, end = cls.decode_prefix(b"header" + encoded + b"more", version, 6)
        assert (message, end) == (cls.decode(encoded, version), 6 + len(encoded))


@every_message
def test_a_message_cut_short_or_too_long_is_refused(cls: type[Message]) -> None:
    @settings(max_examples=3)
    @given(structs(cls))
    def check(message: Message) -> None:
        for version in versions_of(cls):
            encoded = project(message, version).encode(version)
            cuts = {0, len(encoded) // 3, len(encoded) // 2, len(encoded) - 1} - {len(encoded), -1}
            for cut in cuts:
                with pytest.raises(ProtocolError):
                    cls.decode(encoded[:cut], version)
            with pytest.raises(ProtocolError):
                cls.decode(encoded + b"\x00", version)

    check()


@every_message
def test_damaged_bytes_raise_nothing_but_protocol_errors(cls: type[Message]) -> None:
    dice = random.Random(cls.__name__)

    @settings(max_examples=4)
    @given(structs(cls), st.binary(max_size=64))
    def check(message: Message, noise: bytes) -> None:
        for version in versions_of(cls):
            encoded = bytearray(project(message, version).encode(version))
            for _ in range(4):
                damaged = bytearray(encoded) or bytearray(1)
                for _ in range(dice.choice((1, 1, 3))):
                    damaged[dice.randrange(min(len(damaged), 200))] = dice.choice(
                        (0, 1, 0x7F, 0x80, 0xFF, dice.randrange(256))
                    )
                decode_or_refuse(cls, bytes(damaged), version)
            decode_or_refuse(cls, noise, version)

    check()


def decode_or_refuse(cls: type[Message], data: bytes, version: int) -> None:
    try:
        cls.decode(data, version)
    except ProtocolError:
        pass


@every_message
def test_versions_outside_the_declared_range_are_refused(cls: type[Message]) -> None:
    for version in (cls.MIN_VERSION - 1, cls.MAX_VERSION + 1):
        with pytest.raises(ProtocolError, match=cls.__name__):
            cls().encode(version)
        with pytest.raises(ProtocolError, match=cls.__name__):
            cls.decode(b"", version)
