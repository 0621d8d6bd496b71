"""Cycles between the operations of a history: no order in which they can have happened.

Modelled on Jepsen's graph for Kafka. An operation (a transaction, or one call) comes before another
in four ways, of which three go by the highest offset of each operation in a partition:

    ww        both sent to a partition, the other next after this one
    wr        the other polled what this one sent, as the highest of what it polled there
    rw        this one polled up to an offset, and the other sent what comes next there
    process   one client did one after the other

A cycle is named as Adya does: G0 of writes alone, G1c with reads, G-single with one rw, G2 with
more. Kafka isolates no writes: transactions interleave, so cycles with ww or rw are allowed. What
it promises is that committed reads never go round: a cycle of wr and process alone.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict, deque
from collections.abc import Hashable, Iterable, Iterator, Sequence
from enum import StrEnum
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

from tidelog.protocol.topic_partition import TopicPartition

if TYPE_CHECKING:
    from tidelog.testing.history import Operation


class Dependency(StrEnum):
    """How one operation comes before another."""

    WW = "ww"
    WR = "wr"
    RW = "rw"
    PROCESS = "process"


PROMISED = frozenset({Dependency.WR, Dependency.PROCESS})
"""Kafka allows no cycle of these."""


class CycleKind(StrEnum):
    G0 = "G0"
    G1C = "G1c"
    G_SINGLE = "G-single"
    G2 = "G2"


class Edge(NamedTuple):
    """One operation comes before another, by their places in the history."""

    before: int
    after: int
    dependency: Dependency
    topic_partition: TopicPartition | None


class Cycle(NamedTuple):
    """The edges, each beginning where the one before ended, and the last where the first began."""

    kind: CycleKind
    edges: tuple[Edge, ...]

    @property
    def topic_partition(self) -> TopicPartition:
        """One that it goes through."""
        return next(edge.topic_partition for edge in self.edges if edge.topic_partition)

    def tell(self, history: Sequence[Operation]) -> str:
        steps = [
            f"{history[edge.before].process!r} (operation {edge.before}) --{edge.dependency}"
            f"{f' {edge.topic_partition}' if edge.topic_partition else ''}-->"
            for edge in self.edges
        ]
        return f"{self.kind}: {' '.join(steps)} {history[self.edges[0].before].process!r}"


def find_cycles(
    history: Sequence[Operation],
    failed: Iterable[int] = (),
    dependencies: frozenset[Dependency] = PROMISED,
) -> list[Cycle]:
    """A shortest cycle of each part of the graph that has one. `failed` are the places of
    operations that did not happen."""
    left_out = frozenset(failed)
    edges = [
        edge
        for edge in _edges(history, left_out)
        if edge.dependency in dependencies and edge.before != edge.after
    ]
    following: dict[int, list[Edge]] = defaultdict(list)
    for edge in edges:
        following[edge.before].append(edge)
    found = []
    for component in _components(following):
        cycle = _shortest(component, following)
        # What one client does in turn is no cycle by itself.
        if any(edge.topic_partition is not None for edge in cycle):
            found.append(Cycle(_kind(cycle), cycle))
    return found


def _edges(history: Sequence[Operation], left_out: frozenset[int]) -> Iterator[Edge]:
    places = [place for place in range(len(history)) if place not in left_out]
    offsets = _offsets_of_values(history, places)
    highest_sent = _highest_sent(history, places, offsets)
    yield from _process_order(history, places)
    for topic_partition, sent in highest_sent.items():
        for (_, before), (_, after) in pairwise(sent):
            yield Edge(before, after, Dependency.WW, topic_partition)
    senders = {
        (send.topic_partition, send.value): place
        for place in places
        for send in history[place].sends
    }
    for place in places:
        operation = history[place]
        for topic_partition, (offset, value) in _highest_polled(operation).items():
            sender = senders.get((topic_partition, value))
            if sender is not None and not operation.reads_uncommitted:
                yield Edge(sender, place, Dependency.WR, topic_partition)
            sent = highest_sent.get(topic_partition, [])
            following = bisect_right(sent, offset, key=lambda each: each[0])
            if following < len(sent):
                yield Edge(place, sent[following][1], Dependency.RW, topic_partition)


def _process_order(history: Sequence[Operation], places: Iterable[int]) -> Iterator[Edge]:
    latest: dict[Hashable, int] = {}
    for place in places:
        process = history[place].process
        if process in latest:
            yield Edge(latest[process], place, Dependency.PROCESS, None)
        latest[process] = place


def _offsets_of_values(
    history: Sequence[Operation], places: Iterable[int]
) -> dict[tuple[TopicPartition, Hashable], int]:
    """Where values stand, as those who polled them saw."""
    return {
        (record.topic_partition, record.value): record.offset
        for place in places
        for poll in history[place].polls
        for record in poll
    }


def _highest_sent(
    history: Sequence[Operation],
    places: Iterable[int],
    offsets: dict[tuple[TopicPartition, Hashable], int],
) -> dict[TopicPartition, list[tuple[int, int]]]:
    """For each partition the highest offset and the place of each operation that sent there."""
    highest: dict[TopicPartition, dict[int, int]] = defaultdict(dict)
    for place in places:
        for send in history[place].sends:
            offset = send.offset
            if offset is None or offset < 0:
                offset = offsets.get((send.topic_partition, send.value))
            if offset is not None:
                known = highest[send.topic_partition]
                known[place] = max(offset, known.get(place, -1))
    return {
        topic_partition: sorted((offset, place) for place, offset in known.items())
        for topic_partition, known in highest.items()
    }


def _highest_polled(operation: Operation) -> dict[TopicPartition, tuple[int, Hashable]]:
    highest: dict[TopicPartition, tuple[int, Hashable]] = {}
    for poll in operation.polls:
        for record in poll:
            known = highest.get(record.topic_partition)
            if known is None or record.offset > known[0]:
                highest[record.topic_partition] = record.offset, record.value
    return highest


def _components(following: dict[int, list[Edge]]) -> Iterator[frozenset[int]]:
    """Operations that all come before each other (Tarjan's components, without recursion)."""
    index: dict[int, int] = {}
    low: dict[int, int] = {}
    stack: list[int] = []
    on_stack: set[int] = set()
    for root in list(following):
        if root in index:
            continue
        work = [(root, iter(following[root]))]
        index[root] = low[root] = len(index)
        stack.append(root)
        on_stack.add(root)
        while work:
            place, edges = work[-1]
            edge = next(edges, None)
            if edge is not None:
                after = edge.after
                if after not in index:
                    index[after] = low[after] = len(index)
                    stack.append(after)
                    on_stack.add(after)
                    work.append((after, iter(following.get(after, ()))))
                elif after in on_stack:
                    low[place] = min(low[place], index[after])
                continue
            work.pop()
            if work:
                low[work[-1][0]] = min(low[work[-1][0]], low[place])
            if low[place] == index[place]:
                component = set()
                while place not in component:
                    member = stack.pop()
                    on_stack.discard(member)
                    component.add(member)
                if len(component) > 1:
                    yield frozenset(component)


def _shortest(component: frozenset[int], following: dict[int, list[Edge]]) -> tuple[Edge, ...]:
    """A shortest way from some operation of a component back to it."""
    best: tuple[Edge, ...] = ()
    for start in sorted(component):
        reached: dict[int, tuple[Edge, ...]] = {start: ()}
        queue = deque([start])
        while queue:
            place = queue.popleft()
            for edge in following[place]:
                if edge.after == start:
                    cycle = (*reached[place], edge)
                    if not best or len(cycle) < len(best):
                        best = cycle
                    queue.clear()
                    break
                if edge.after in component and edge.after not in reached:
                    reached[edge.after] = (*reached[place], edge)
                    queue.append(edge.after)
        if len(best) == 2:
            break
    return best


def _kind(edges: Iterable[Edge]) -> CycleKind:
    dependencies = [edge.dependency for edge in edges]
    reads_before = dependencies.count(Dependency.RW)
    if reads_before:
        return CycleKind.G_SINGLE if reads_before == 1 else CycleKind.G2
    return CycleKind.G1C if Dependency.WR in dependencies else CycleKind.G0
