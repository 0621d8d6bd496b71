"""The cluster's metadata at one offset of the metadata log.

An image never changes. `MetadataImage.apply` makes the next one, which shares everything that the
records leave alone; whoever reads an image may keep it for as long as it likes. The mappings are
plain dicts so that lookups on the hot path cost no more than that: read them only.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import IntEnum
from typing import NamedTuple

from tidelog.cluster.features import KRAFT_VERSION, METADATA_VERSION
from tidelog.cluster.topic_names import is_internal
from tidelog.protocol.schema import Message

NO_LEADER = -1
_NO_SETTINGS: Mapping[str, str] = {}


class ConfigResourceType(IntEnum):
    """What settings can belong to, with the numbers of the protocol."""

    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


class ConfigResource(NamedTuple):
    """`name` is empty for what holds for all brokers."""

    type: int
    name: str


# (type, name) pairs sorted by type; a name of None is the default of that type.
QuotaEntity = tuple[tuple[str, str | None], ...]


class Endpoint(NamedTuple):
    name: str
    host: str
    port: int
    security_protocol: int = 0


class LeaderRecoveryState(IntEnum):
    RECOVERED = 0
    RECOVERING = 1  # elected uncleanly, has not yet found out what the log lost


class PartitionImage(NamedTuple):
    """Who replicates a partition and who leads it.

    The leader epoch rises with every election, the partition epoch with every change; isr is a
    subset of replicas, and leader is one of isr or NO_LEADER.
    """

    partition: int
    leader: int
    leader_epoch: int
    partition_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    removing_replicas: tuple[int, ...] = ()
    adding_replicas: tuple[int, ...] = ()
    leader_recovery_state: int = LeaderRecoveryState.RECOVERED
    directories: tuple[bytes, ...] = ()
    eligible_leader_replicas: tuple[int, ...] = ()
    last_known_elr: tuple[int, ...] = ()

    @property
    def preferred_leader(self) -> int:
        return self.replicas[0] if self.replicas else NO_LEADER

    @property
    def is_reassigning(self) -> bool:
        return bool(self.removing_replicas or self.adding_replicas)

    def directory_of(self, broker_id: int) -> bytes | None:
        """Where the broker's replica is; None where it has none, or that is not known."""
        if broker_id not in self.replicas or not self.directories:
            return None
        return self.directories[self.replicas.index(broker_id)]


class TopicImage(NamedTuple):
    """A topic; the partition with id i is `partitions[i]`."""

    name: str
    topic_id: bytes
    partitions: tuple[PartitionImage, ...]

    @property
    def is_internal(self) -> bool:
        return is_internal(self.name)


class BrokerImage(NamedTuple):
    """A registered broker; `epoch` is the offset of its registration."""

    broker_id: int
    epoch: int
    incarnation_id: bytes
    endpoints: tuple[Endpoint, ...]
    features: tuple[tuple[str, int, int], ...] = ()  # name, lowest and highest level
    rack: str | None = None
    fenced: bool = True
    in_controlled_shutdown: bool = False
    log_dirs: tuple[bytes, ...] = ()
    cordoned_log_dirs: tuple[bytes, ...] | None = None  # None: the broker has not said

    @property
    def is_active(self) -> bool:
        """Whether it may lead partitions and be in their in-sync sets."""
        return not self.fenced and not self.in_controlled_shutdown

    def endpoint(self, listener: str) -> Endpoint | None:
        for endpoint in self.endpoints:
            if endpoint.name == listener:
                return endpoint
        return None


class ControllerImage(NamedTuple):
    controller_id: int
    incarnation_id: bytes
    endpoints: tuple[Endpoint, ...]
    features: tuple[tuple[str, int, int], ...] = ()
    zk_migration_ready: bool = False


class ScramCredential(NamedTuple):
    salt: bytes
    stored_key: bytes
    server_key: bytes
    iterations: int

    def __repr__(self) -> str:
        return "ScramCredential(hidden)"


class AclEntry(NamedTuple):
    resource_type: int
    resource_name: str
    pattern_type: int
    principal: str
    host: str
    operation: int
    permission_type: int


class DelegationToken(NamedTuple):
    owner: str
    requester: str
    renewers: tuple[str, ...]
    issue_timestamp_ms: int
    max_timestamp_ms: int
    expiration_timestamp_ms: int


@dataclass(slots=True)
class MetadataDelta:
    """What the records between two images touched."""

    created_topics: list[TopicImage] = field(default_factory=list)
    deleted_topics: list[TopicImage] = field(default_factory=list)
    changed_topics: list[tuple[TopicImage, TopicImage]] = field(default_factory=list)
    configs: set[ConfigResource] = field(default_factory=set)
    brokers: set[int] = field(default_factory=set)
    controllers: set[int] = field(default_factory=set)
    features: set[str] = field(default_factory=set)
    quotas: set[QuotaEntity] = field(default_factory=set)
    scram: set[tuple[str, int]] = field(default_factory=set)
    acls: set[bytes] = field(default_factory=set)


@dataclass(slots=True, frozen=True)
class MetadataImage:
    """Everything that is known at `offset`, the last record applied (-1: none yet)."""

    topics_by_name: Mapping[str, TopicImage] = field(default_factory=dict)
    topics_by_id: Mapping[bytes, TopicImage] = field(default_factory=dict)
    brokers: Mapping[int, BrokerImage] = field(default_factory=dict)
    controllers: Mapping[int, ControllerImage] = field(default_factory=dict)
    configs: Mapping[ConfigResource, Mapping[str, str]] = field(default_factory=dict)
    features: Mapping[str, int] = field(default_factory=dict)
    next_producer_id: int = 0
    client_quotas: Mapping[QuotaEntity, Mapping[str, float]] = field(default_factory=dict)
    scram: Mapping[tuple[str, int], ScramCredential] = field(default_factory=dict)
    acls: Mapping[bytes, AclEntry] = field(default_factory=dict)
    delegation_tokens: Mapping[str, DelegationToken] = field(default_factory=dict)
    offset: int = -1
    epoch: int = 0
    timestamp_ms: int = -1

    @property
    def metadata_version(self) -> int:
        return self.finalized_level(METADATA_VERSION)

    def finalized_level(self, feature: str) -> int:
        """The level that the cluster has agreed on; 0 for a feature that is off or unknown."""
        return self.features.get(feature, 0)

    def partition(self, topic: str, partition: int) -> PartitionImage | None:
        found = self.topics_by_name.get(topic)
        if found is None or not 0 <= partition < len(found.partitions):
            return None
        return found.partitions[partition]

    def topic_configs(self, topic: str) -> Mapping[str, str]:
        """The settings that were made for this topic."""
        return self.configs.get(ConfigResource(ConfigResourceType.TOPIC, topic), _NO_SETTINGS)

    def broker_configs(self, broker_id: int) -> Mapping[str, str]:
        """The settings that were made for this broker only."""
        resource = ConfigResource(ConfigResourceType.BROKER, str(broker_id))
        return self.configs.get(resource, _NO_SETTINGS)

    def cluster_configs(self) -> Mapping[str, str]:
        """The settings that were made for all brokers."""
        return self.configs.get(ConfigResource(ConfigResourceType.BROKER, ""), _NO_SETTINGS)

    def group_configs(self, group: str) -> Mapping[str, str]:
        """The settings that were made for this group."""
        return self.configs.get(ConfigResource(ConfigResourceType.GROUP, group), _NO_SETTINGS)

    def apply(
        self, records: Iterable[Message], offset: int, epoch: int, timestamp_ms: int
    ) -> tuple[MetadataImage, MetadataDelta]:
        """The image after `records`, of which the last stands at `offset`, and what it changed.

        One pass over the records; each mapping that they touch is copied once, one level deep.
        """
        from tidelog.cluster.metadata.image_changes import ImageChanges

        changes = ImageChanges(self)
        for record in records:
            changes.replay(record)
        return changes.finish(offset, epoch, timestamp_ms)

    def at(self, offset: int, epoch: int, timestamp_ms: int) -> MetadataImage:
        """The same metadata at a later place of the log, after records that change none of it."""
        return replace(self, offset=offset, epoch=epoch, timestamp_ms=timestamp_ms)

    def with_kraft_version(self, level: int) -> MetadataImage:
        """The quorum's own feature level comes from a control record, not from a decision."""
        features = {**self.features, KRAFT_VERSION: level}
        if not level:
            del features[KRAFT_VERSION]
        return replace(self, features=features)
