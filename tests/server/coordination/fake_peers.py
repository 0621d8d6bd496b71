"""A node as the parts of coordination see it, whose peers answer when a test says so."""

from __future__ import annotations

import io
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import cast

from tidelog.cluster.metadata.image import (
    NO_LEADER,
    BrokerImage,
    Endpoint,
    MetadataDelta,
    MetadataImage,
    PartitionImage,
    TopicImage,
)
from tidelog.protocol.schema import Message
from tidelog.server.network.peer_connection import PeerError
from tidelog.server.network.peers import Purpose, UnknownNodeError
from tidelog.server.node import Node
from tidelog.server.structured_logs import StructuredLog


@dataclass
class Call:
    """A request on its way to another node."""

    node_id: int
    purpose: Purpose
    message: Message
    done: Callable[[Message | None, PeerError | None], None]


class Timer:
    def __init__(self, at: float, callback: Callable[[], None]) -> None:
        self.at = at
        self.callback: Callable[[], None] | None = callback

    def cancel(self) -> None:
        self.callback = None


@dataclass
class FakeNode:
    """Node 1. `calls` are those that have no answer yet."""

    image: MetadataImage = field(default_factory=MetadataImage)
    calls: list[Call] = field(default_factory=list)
    unknown: set[int] = field(default_factory=set)
    time_s: float = 0.0
    timers: list[Timer] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.config = self
        self.node_id = 1
        self.peers = self.reactor = self.world = self
        self.log = StructuredLog(now_ms=lambda: 0, stream=io.StringIO())

    @property
    def node(self) -> Node:
        return cast(Node, self)

    # The world and the reactor

    def monotonic(self) -> float:
        return self.time_s

    def call_later(self, delay_s: float, callback: Callable[[], None]) -> Timer:
        timer = Timer(self.time_s + delay_s, callback)
        self.timers.append(timer)
        return timer

    def call_soon(self, callback: Callable[[], None]) -> None:
        self.call_later(0, callback)

    def pass_time(self, seconds: float) -> None:
        self.time_s += seconds
        due = [each for each in self.timers if each.at <= self.time_s]
        self.timers = [each for each in self.timers if each.at > self.time_s]
        for timer in due:
            if timer.callback is not None:
                timer.callback()

    # Peers

    def to(self, node_id: int, purpose: Purpose) -> _Peer:
        if node_id in self.unknown:
            raise UnknownNodeError(f"node {node_id}")
        return _Peer(self, node_id, purpose)

    def answer(self, response: Message | None = None, error: PeerError | None = None) -> Call:
        """Answer the oldest call."""
        call = self.calls.pop(0)
        call.done(response, error)
        return call

    # Metadata

    def lead(self, topic: str, *leaders: int) -> MetadataDelta:
        """The partitions of a topic have these leaders now; none at all: it is deleted."""
        by_name = dict(self.image.topics_by_name)
        before = by_name.pop(topic, None)
        delta = MetadataDelta()
        if leaders:
            epoch = 0 if before is None else before.partitions[0].leader_epoch + 1
            by_name[topic] = after = TopicImage(
                topic,
                topic.encode().ljust(16),
                tuple(
                    PartitionImage(index, leader, epoch, epoch, (1, 2, 3), (leader,))
                    for index, leader in enumerate(leaders)
                ),
            )
            if before is None:
                delta.created_topics.append(after)
            else:
                delta.changed_topics.append((before, after))
        elif before is not None:
            delta.deleted_topics.append(before)
        brokers = {
            leader: BrokerImage(leader, 0, b"", (Endpoint("PLAINTEXT", "h", leader),), fenced=False)
            for leader in (1, 2, 3)
            if leader != NO_LEADER
        }
        self.image = replace(self.image, topics_by_name=by_name, brokers=brokers)
        return delta


class _Peer:
    def __init__(self, node: FakeNode, node_id: int, purpose: Purpose) -> None:
        self._node = node
        self._node_id = node_id
        self._purpose = purpose

    def call(
        self,
        message: Message,
        done: Callable[[Message | None, PeerError | None], None],
        *,
        timeout_s: float,
    ) -> None:
        self._node.calls.append(Call(self._node_id, self._purpose, message, done))
