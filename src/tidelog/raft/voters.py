"""The voters of the quorum: who they are, where they listen, what they support.

A voter is a node id with the id of its log directory. The same node id with another directory is
another replica: its disk was replaced and it has forgotten what it voted for. A directory id of
zeros means that it is not known, as with voters that only the configuration names
(kraft.version 0); such a voter matches any directory.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from tidelog.protocol.control_records import (
    Voter,
    VoterEndpoint,
    VotersRecord,
    VoterVersionFeature,
)
from tidelog.protocol.uuids import ZERO_UUID

KRAFT_VERSION = "kraft.version"
RECONFIGURATION_VERSION = 1
"""From this kraft.version on voters are records of the log."""


class ReplicaKey(NamedTuple):
    id: int
    directory_id: bytes = ZERO_UUID


class Endpoint(NamedTuple):
    name: str  # of the listener
    host: str
    port: int


Endpoints = tuple[Endpoint, ...]


class Destination(NamedTuple):
    """Where a request goes. Bootstrap servers, of which only the address is known, have negative
    ids."""

    node_id: int
    host: str
    port: int


class VoterNode(NamedTuple):
    key: ReplicaKey
    endpoints: Endpoints
    min_kraft_version: int = 0
    max_kraft_version: int = 1

    def matches(self, key: ReplicaKey) -> bool:
        own = self.key
        return own.id == key.id and own.directory_id in (ZERO_UUID, key.directory_id)

    def supports(self, kraft_version: int) -> bool:
        return self.min_kraft_version <= kraft_version <= self.max_kraft_version


class VoterSet:
    """The voters at some offset of the log. Immutable."""

    __slots__ = ("_nodes", "majority")

    def __init__(self, nodes: Iterable[VoterNode]) -> None:
        self._nodes = {node.key.id: node for node in sorted(nodes)}
        self.majority = len(self._nodes) // 2 + 1

    def __iter__(self) -> Iterator[VoterNode]:
        return iter(self._nodes.values())

    def __len__(self) -> int:
        return len(self._nodes)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, VoterSet) and self._nodes == other._nodes

    def __hash__(self) -> int:
        return hash(tuple(self._nodes))

    def __repr__(self) -> str:
        return f"VoterSet({list(self._nodes)})"

    @property
    def ids(self) -> tuple[int, ...]:
        return tuple(self._nodes)

    def get(self, node_id: int) -> VoterNode | None:
        return self._nodes.get(node_id)

    def is_voter(self, key: ReplicaKey) -> bool:
        node = self._nodes.get(key.id)
        return node is not None and node.matches(key)

    def is_only_voter(self, key: ReplicaKey) -> bool:
        return len(self._nodes) == 1 and self.is_voter(key)

    def endpoints(self, node_id: int) -> Endpoints:
        node = self._nodes.get(node_id)
        return () if node is None else node.endpoints

    def needs_update(self, node: VoterNode) -> bool:
        """Whether this voter is listed with other endpoints or versions than it has."""
        listed = self._nodes.get(node.key.id)
        return listed is not None and listed.matches(node.key) and listed != node

    def with_voter(self, node: VoterNode) -> VoterSet:
        """With one voter more, or with another description of it."""
        return VoterSet([*(each for each in self if each.key.id != node.key.id), node])

    def without(self, key: ReplicaKey) -> VoterSet | None:
        """With one voter less; None when it is not listed by this key or the only one."""
        node = self._nodes.get(key.id)
        if node is None or node.key != key or len(self._nodes) == 1:
            return None
        return VoterSet(each for each in self if each.key.id != key.id)

    def overlaps(self, other: VoterSet) -> bool:
        """Whether every majority of one shares a voter with every majority of the other, because
        they differ by one voter at most."""
        own, others = {node.key for node in self}, {node.key for node in other}
        return len(own - others) <= 1 and len(others - own) <= 1

    # As a record

    def to_record(self) -> VotersRecord:
        return VotersRecord(
            version=0,
            voters=[
                Voter(
                    voter_id=node.key.id,
                    voter_directory_id=node.key.directory_id,
                    endpoints=[
                        VoterEndpoint(name=each.name, host=each.host, port=each.port)
                        for each in node.endpoints
                    ],
                    kraft_version_feature=VoterVersionFeature(
                        min_supported_version=node.min_kraft_version,
                        max_supported_version=node.max_kraft_version,
                    ),
                )
                for node in self
            ],
        )

    @classmethod
    def from_record(cls, record: VotersRecord) -> VoterSet:
        return cls(
            VoterNode(
                ReplicaKey(voter.voter_id, voter.voter_directory_id),
                tuple(Endpoint(each.name, each.host, each.port) for each in voter.endpoints),
                voter.kraft_version_feature.min_supported_version,
                voter.kraft_version_feature.max_supported_version,
            )
            for voter in record.voters
        )
