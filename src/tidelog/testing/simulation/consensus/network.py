"""Links between simulated replicas: delays, losses, partitions, connections that break.

A pair of nodes has a connection in each direction, on which requests arrive in order. When one
breaks, what was on its way may still arrive, late, and beside what a new connection brings; its
answer does not. A message that is lost is noticed at once (the connection was reset) or not at all,
until the sender's patience ends.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

from tidelog.protocol.apis.api_versions import ApiVersionsRequest
from tidelog.protocol.apis.fetch import FetchRequest
from tidelog.protocol.apis.vote import VoteRequest
from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.registry import response_class
from tidelog.protocol.schema import Message
from tidelog.testing.simulation.consensus.options import Options

MS_US = 1_000
_FETCH_VERSION_MIN = 12
_FETCH_VERSION_WITH_DIRECTORY = 17
_API_VERSIONS_WITH_FEATURES = 3


class UnsupportedVersion(Exception):
    """The other side is too old for this request."""


class Links:
    """Which messages arrive, and when."""

    def __init__(self, options: Options, random: Random, count: Callable[[str], None]) -> None:
        self._options = options
        self._random = random
        self._count = count
        self._blocked: set[tuple[int, int]] = set()
        self._arrival_us: dict[tuple[int, int], int] = {}
        self._versions: dict[tuple[int, int, int], int] = {}
        self.is_faulty = True

    def block(self, pairs: set[tuple[int, int]]) -> None:
        self._blocked |= pairs

    def heal(self) -> None:
        self._blocked.clear()

    def is_open(self, source: int, target: int) -> bool:
        return not self._blocked or (source, target) not in self._blocked

    def loses(self, source: int, target: int) -> bool:
        if self._blocked and (source, target) in self._blocked:
            self._count("messages cut off")
            return True
        if self._options.loss and self.is_faulty:
            self._count("messages in war")
            if self._random.random() < self._options.loss:
                self._count("messages lost")
                return True
        return False

    def is_noticed(self) -> bool:
        """Whether the sender hears of a loss."""
        return self._random.random() < 0.6

    def arrival_us(self, source: int, target: int, now_us: int) -> int:
        options, random = self._options, self._random
        delay_us = 100 + int(random.random() * options.latency_ms * MS_US)
        if self.is_faulty and options.stragglers and random.random() < options.stragglers:
            # On a connection that breaks meanwhile: it overtakes nothing and is overtaken.
            self._count("stragglers")
            return now_us + delay_us + random.randrange(3_000 * MS_US)
        arrival_us = max(now_us + delay_us, self._arrival_us.get((source, target), 0))
        self._arrival_us[source, target] = arrival_us
        return arrival_us

    # The wire

    def encoded(self, source: int, target: int, request: Message) -> tuple[int, Any]:
        """The version that two nodes use, and the request as it arrives. Raises
        UnsupportedVersion."""
        cls = type(request)
        low = cls.MIN_VERSION
        if cls is FetchRequest:
            low = _FETCH_VERSION_MIN
        if self._options.kraft_version:
            # Voters with directory ids need messages that have them.
            low = _FETCH_VERSION_WITH_DIRECTORY if cls is FetchRequest else min(1, cls.MAX_VERSION)
        if cls is ApiVersionsRequest:
            low = _API_VERSIONS_WITH_FEATURES
        key = source, target, cls.API_KEY
        version = self._versions.get(key)
        if version is None:
            version = self._versions[key] = self._random.randint(low, cls.MAX_VERSION)
        if (
            isinstance(request, VoteRequest)
            and version < 2
            and request.topics[0].partitions[0].pre_vote
        ):
            raise UnsupportedVersion
        return version, cls.decode(request.encode(version), version)


def encoded_response(request: Message, version: int, response: Message) -> Message:
    """The response as it arrives."""
    return response_class(request.API_KEY).decode(response.encode(version), version)


UNSUPPORTED = ErrorCode.UNSUPPORTED_VERSION
