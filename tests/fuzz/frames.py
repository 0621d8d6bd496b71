"""Malformed frames, made by cheap mutations of valid ones.

A malformed frame ends its connection, so what follows it on the same connection is never looked at.
Therefore frames come in bursts, one for a connection: some that can be decoded (mutated all the
same), and at the end one that cannot, or half a frame, or garbage.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from struct import Struct
from typing import NamedTuple

from crc32c import crc32c

from tests.fuzz.valid_requests import MAKERS, ValidRequest, record_batches
from tidelog.protocol.api_keys import ApiKey
from tidelog.protocol.errors import ProtocolError
from tidelog.protocol.headers import decode_request_header
from tidelog.protocol.registry import request_class

_LENGTH = Struct(">i")
_HEADER = Struct(">hhih")
_CRC = Struct(">I")
_CRC_AT = 17
_CHECKED_FROM = 21
_DECODABLE_PER_BURST_MAX = 3
_MAKERS_MAX = 20_000

# Lengths, counts and offsets that code likes to trust.
_ABSURD = (
    b"\x7f\xff\xff\xff",
    b"\xff\xff\xff\xff",
    b"\x80\x00\x00\x00",
    b"\x00\xff\xff\xff",
    b"\x7f\xff",
    b"\x80\x00",
    b"\xff\xff\xff\xff\x07",
    b"\xff\xff\xff\xff\x0f",
    b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",
    b"\xff" * 12,
    b"\x80" * 9 + b"\x00",
    bytes(8),
)
_LYING_LENGTHS = (-(1 << 31), -1, 0, 7, (1 << 31) - 1, 200 << 20, 99 << 20)

# An answer to these may be a long time coming, as it should.
_WAITING = frozenset({ApiKey.FETCH, ApiKey.JOIN_GROUP, ApiKey.SYNC_GROUP})

Served = Mapping[int, tuple[int, int]]


class Burst(NamedTuple):
    """What is sent over one connection."""

    data: bytes
    frames: int
    malformed: int
    is_ended_by_node: bool  # else the client has to end the connection
    may_wait: bool


class FrameSource:
    """An endless source of bursts.

    `served` are the version ranges that the node serves: they tell what it will decode.
    """

    def __init__(self, requests: Sequence[ValidRequest], served: Served, seed: int) -> None:
        self._rng = random.Random(seed)
        self._served = served
        self._requests = [request for request in requests if request.api_key not in MAKERS]
        self._makers = [request for request in requests if request.api_key in MAKERS]
        self._makers_left = _MAKERS_MAX
        self._produce = [request for request in requests if request.api_key == ApiKey.PRODUCE]
        self._batches = record_batches()
        self._mutations = (
            *[self._flip_bits] * 4,
            *[self._put_absurd_number] * 3,
            *[self._cut] * 2,
            self._flip_bytes,
            self._splice,
            self._repeat_a_piece,
            self._insert_bytes,
            self._put_bad_batch,
            self._put_tags,
            self._keep_header_only,
            self._make_random,
            self._as_it_is,
        )

    def burst(self) -> Burst:
        rng = self._rng
        frames: list[bytes] = []
        counted = 0
        may_wait = False
        undecodable = b""
        wanted = rng.randrange(_DECODABLE_PER_BURST_MAX + 1)
        for _ in range(3 * wanted):
            frame = rng.choice(self._mutations)(self._pick())
            if not self.is_decodable(frame):
                undecodable = frame
                continue
            frames.append(frame)
            counted += not may_wait
            may_wait = may_wait or int.from_bytes(frame[4:6], "big") in _WAITING
            if len(frames) == wanted:
                break
        end, is_refused = (undecodable, True) if undecodable else self._end()
        frames.append(end)
        is_seen = bool(end) and not may_wait
        return Burst(
            b"".join(frames), counted + is_seen, int(is_seen), is_refused and is_seen, may_wait
        )

    def is_decodable(self, frame: bytes) -> bool:
        """Whether the node must take this for a request, which it answers."""
        body = frame[4:]
        api_key, version, _, client_id_bytes = _HEADER.unpack_from(body.ljust(_HEADER.size))
        low, high = self._served.get(api_key, (0, -1))
        if not low <= version <= high:
            # ApiVersions is answered in any version; only its client id has to be whole.
            return (
                api_key == ApiKey.API_VERSIONS
                and len(body) >= _HEADER.size
                and _is_text(body[_HEADER.size :], client_id_bytes)
            )
        try:
            _, at = decode_request_header(body)
            request_class(api_key).decode_prefix(body, version, at)
        except ProtocolError:
            return False
        return True

    def _pick(self) -> ValidRequest:
        rng = self._rng
        if self._makers_left and rng.random() < 0.3:
            self._makers_left -= 1
            return rng.choice(self._makers)
        return rng.choice(self._requests)

    def _end(self) -> tuple[bytes, bool]:
        """The end of a burst, and whether the node has to refuse it by itself."""
        rng = self._rng
        frame = self._pick().frame
        choice = rng.randrange(8)
        if choice == 0:
            return b"", False
        if choice <= 2:
            return frame[: rng.randint(1, len(frame) - 1)], False
        if choice == 3:
            return _LENGTH.pack(len(frame) + rng.randint(0, 70_000)) + frame[4:], False
        length = rng.choice(_LYING_LENGTHS)
        return _LENGTH.pack(length) + frame[4:], not 8 <= length <= 100 << 20

    # Mutations: a valid request in, a frame with its right length out

    def _as_it_is(self, request: ValidRequest) -> bytes:
        return request.frame

    def _flip_bits(self, request: ValidRequest) -> bytes:
        rng = self._rng
        frame = bytearray(request.frame)
        for _ in range(rng.choice((1, 1, 2, 8))):
            bit = rng.randrange(32, 8 * len(frame))
            frame[bit >> 3] ^= 1 << (bit & 7)
        return bytes(frame)

    def _flip_bytes(self, request: ValidRequest) -> bytes:
        rng = self._rng
        frame = bytearray(request.frame)
        for _ in range(rng.choice((1, 2, 8))):
            frame[rng.randrange(4, len(frame))] = rng.choice((0, 1, 0x7F, 0x80, 0xFF))
        return bytes(frame)

    def _put_absurd_number(self, request: ValidRequest) -> bytes:
        number = self._rng.choice(_ABSURD)
        frame = request.frame
        at = self._rng.randrange(min(12, len(frame)), len(frame) + 1)
        return _framed(frame[4:at] + number + frame[at + len(number) :])

    def _cut(self, request: ValidRequest) -> bytes:
        frame = request.frame
        return _framed(frame[4 : self._rng.randint(12, len(frame))])

    def _splice(self, request: ValidRequest) -> bytes:
        rng = self._rng
        other = rng.choice(self._requests).frame
        frame = request.frame
        return _framed(
            frame[4 : rng.randint(12, len(frame))] + other[rng.randint(12, len(other)) :]
        )

    def _repeat_a_piece(self, request: ValidRequest) -> bytes:
        rng = self._rng
        frame = request.frame
        start = rng.randint(12, len(frame))
        end = rng.randint(start, len(frame))
        return _framed(frame[4:end] + frame[start:end] * rng.choice((1, 2, 20)) + frame[end:])

    def _insert_bytes(self, request: ValidRequest) -> bytes:
        rng = self._rng
        frame = request.frame
        at = rng.randint(12, len(frame))
        return _framed(frame[4:at] + rng.randbytes(rng.choice((1, 2, 4, 30))) + frame[at:])

    def _put_bad_batch(self, request: ValidRequest) -> bytes:
        """A Produce request whose batch is damaged inside, often under a CRC that is right."""
        rng = self._rng
        request = rng.choice(self._produce)
        batch = bytearray(rng.choice(self._batches))
        for _ in range(rng.choice((1, 1, 2, 6))):
            batch[rng.randrange(len(batch))] ^= 1 << rng.randrange(8)
        if rng.random() < 0.3:
            del batch[rng.randrange(len(batch)) :]
        if rng.random() < 0.7 and len(batch) > _CHECKED_FROM:
            _CRC.pack_into(batch, _CRC_AT, crc32c(memoryview(batch)[_CHECKED_FROM:]))
        frame = bytearray(request.frame)
        start = frame.find(b"\x02", 12)  # somewhere; most often not a batch's place
        place = next((at for at in map(frame.find, map(bytes, self._batches)) if at >= 0), start)
        frame[place : place + len(batch)] = batch
        return _framed(bytes(frame[4:]))

    def _put_tags(self, request: ValidRequest) -> bytes:
        """Tagged fields that nobody knows: many, nested, in no order, of a size that lies."""
        rng = self._rng
        frame = request.frame
        count = rng.choice((1, 3, 100, 300))
        tags = b"".join(self._tag(depth=rng.choice((0, 2, 40))) for _ in range(min(count, 20)))
        body = _uvarint(count) + tags
        if request.is_flexible and rng.random() < 0.7:
            return _framed(frame[4:-1] + body)
        at = rng.randint(12, len(frame))
        return _framed(frame[4:at] + body + frame[at:])

    def _tag(self, depth: int) -> bytes:
        rng = self._rng
        value = rng.randbytes(rng.choice((0, 1, 9)))
        for _ in range(depth):
            value = b"\x01" + _uvarint(rng.randrange(4)) + _uvarint(len(value)) + value
        size = len(value) if rng.random() < 0.9 else rng.choice((0, 1 << 20, (1 << 32) - 1))
        return _uvarint(rng.choice((0, 1, 5, 10_000))) + _uvarint(size) + value

    def _keep_header_only(self, request: ValidRequest) -> bytes:
        return _framed(request.frame[4:14] + self._rng.randbytes(self._rng.randint(0, 120)))

    def _make_random(self, request: ValidRequest) -> bytes:
        return _framed(self._rng.randbytes(self._rng.choice((8, 9, 10, 30, 300))))


def _framed(body: bytes) -> bytes:
    """The bytes as one frame; those that are too few for a header are filled up."""
    body = body.ljust(8, b"\x00")
    return _LENGTH.pack(len(body)) + body


def _is_text(data: bytes, size_bytes: int) -> bool:
    """Whether `data` begins with a text of this size; a negative one is null."""
    try:
        data[: max(0, size_bytes)].decode()
    except UnicodeDecodeError:
        return False
    return size_bytes <= len(data)


def _uvarint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)
