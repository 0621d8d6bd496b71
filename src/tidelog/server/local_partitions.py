"""The partitions of this node, kept as the metadata says: the one place that carries it out."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from tidelog.cluster.metadata.image import (
    ConfigResourceType,
    MetadataDelta,
    MetadataImage,
    TopicImage,
)
from tidelog.cluster.replication.partition import Partition
from tidelog.cluster.settings.topic_config import to_log_config
from tidelog.cluster.topic_names import is_internal
from tidelog.errors import TidelogError
from tidelog.protocol.errors import ApiError, ErrorCode
from tidelog.protocol.topic_partition import TopicPartition
from tidelog.protocol.uuids import ZERO_UUID
from tidelog.storage.directories.partition_metadata import FILE_NAME

if TYPE_CHECKING:
    from tidelog.cluster.metadata.image import BrokerImage, PartitionImage
    from tidelog.cluster.metadata.metadata_log import MetadataLog
    from tidelog.cluster.replication.partition_registry import PartitionRegistry
    from tidelog.cluster.replication.waiting import Waiting
    from tidelog.server.structured_logs import StructuredLog
    from tidelog.storage.log import Log
    from tidelog.storage.log_config import LogConfig
    from tidelog.storage.log_store import LogStore

_UNKNOWN_LOGS_SHOWN_MAX = 5
# A log takes a millisecond to make: its files are most of it.
LOGS_MADE_PER_TURN_MAX = 8
_RETRY_S = 1.0


class UnknownLogsError(TidelogError):
    """There are records of topics that the metadata does not know, and did not remove."""

    def __init__(self, logs: list[Log], metadata_path: Path) -> None:
        some = ", ".join(str(log.directory) for log in logs[:_UNKNOWN_LOGS_SHOWN_MAX])
        super().__init__(
            f"{some}{' ...' if len(logs) > _UNKNOWN_LOGS_SHOWN_MAX else ''}: the metadata in "
            f"{metadata_path} knows no topic with the id in {logs[0].directory / FILE_NAME}, so "
            f"one of these files is damaged ({len(logs)} such partitions). Restore it from a copy; "
            "if the partition.metadata of a topic that exists is the wrong one, delete that file; "
            "to give up the records, move these directories away"
        )


class LocalPartitions:
    """Creates, leads, follows, configures and deletes the partitions of one node.

    A change that brings many partitions is carried out over several turns of the loop, so that
    other clients are served meanwhile; `when_carried_out` tells when it is. Until then a partition
    of it that is asked for is unknown, as with a broker that has not heard of it yet.
    """

    def __init__(
        self,
        node_id: int,
        store: LogStore,
        partitions: PartitionRegistry,
        waiting: Waiting,
        broker_config: Callable[[MetadataImage], Mapping[str, str]],
        monotonic_ms: Callable[[], int],
        call_later: Callable[[float, Callable[[], None]], object],
        log: StructuredLog,
    ) -> None:
        self._node_id = node_id
        self._store = store
        self._partitions = partitions
        self._waiting_on = waiting
        self._broker_config = broker_config
        self._monotonic_ms = monotonic_ms
        self._call_later = call_later
        self._image = MetadataImage()
        # Partitions that are still to be made: topic id and number, and how many there ever were.
        self._to_make: deque[tuple[bytes, int]] = deque()
        self._ever_queued = 0
        self._queued_by_last_change = 0
        self._goes_on_next_turn = False
        self._waiting: deque[tuple[int, Callable[[], None]]] = deque()
        # Partitions whose logs are, for all that is known, in a directory that is offline: an empty
        # log in another directory must not take their place.
        self._away: set[tuple[bytes, int]] = set()
        # Partitions whose disk had no room for them, which are tried again.
        self._not_made: dict[tuple[bytes, int], None] = {}
        self.on_made_late: Callable[[MetadataImage], None] = lambda image: None
        """Called when partitions are there which could not be made when the image said so."""
        self.on_follow: Callable[[Partition], None] = lambda partition: None
        """Called when a partition follows a leader, or none, whatever it did before."""
        self.on_unfollow: Callable[[Partition], None] = lambda partition: None
        """Called when a partition leads, or is about to leave this node."""
        self.log = log

    def claim_logs(self, metadata: MetadataLog, last_run: BrokerImage | None) -> None:
        """At start, first: keep the logs that the metadata knows, delete those of removed topics.
        `last_run` is how this broker was registered before this start.

        A topic may have been deleted while the directory of its log was away: such a log is set
        aside, and never deleted, because the metadata does not prove that it was. Raises
        UnknownLogsError when there are others: then it is the metadata that has lost them.
        """
        image = metadata.image
        store = self._store
        metadata.may_forget_removals = lambda: not store.is_deleting
        removed: frozenset[bytes] | None = None  # read when a log is unknown, for it takes a while
        unknown: list[Log] = []
        for log in [*store.logs.values(), *store.rivals]:
            topic_partition = log.topic_partition
            topic = image.topics_by_name.get(topic_partition.topic)
            if topic is not None and log.topic_id == topic.topic_id:
                continue
            if topic is not None and log.topic_id == ZERO_UUID and not store.has_rival(log):
                self.log.warning("topic_id_restored", partition=f"{topic_partition}")
                store.identify(topic_partition, topic.topic_id)
                continue
            if removed is None:
                removed = metadata.removed_topic_ids()
            if log.topic_id in removed or not log.size_bytes:
                self.log.info("removed_log_deleted", partition=f"{topic_partition}")
                store.delete_log(log)
            elif self._was_away(log, last_run):
                directory = store.set_aside(log)
                self.log.warning(
                    "stray_log_set_aside", partition=f"{topic_partition}", directory=directory
                )
            else:
                unknown.append(log)
        if unknown:
            raise UnknownLogsError(unknown, metadata.log.active_segment.path)

    def _was_away(self, log: Log, last_run: BrokerImage | None) -> bool:
        """Whether the log's directory was out of service when this node last ran."""
        return last_run is not None and self._store.directory_id_of(log) not in last_run.log_dirs

    def load(self, image: MetadataImage) -> None:
        """At start, then: make the partitions that the image says are here."""
        self._image = image
        if not all(state.online for state in self._store.directories):
            self._away = {
                (topic.topic_id, partition.partition)
                for topic in image.topics_by_name.values()
                for partition in topic.partitions
                if self._store.get(TopicPartition(topic.name, partition.partition)) is None
            }
        for topic in image.topics_by_name.values():
            self._apply_topic(topic, image, len(topic.partitions))

    def apply(self, old: MetadataImage, new: MetadataImage, delta: MetadataDelta) -> None:
        """The image changed."""
        self._image = new
        was_queued = self._ever_queued
        self._apply(new, delta)
        self._queued_by_last_change = self._ever_queued if self._ever_queued > was_queued else 0
        self._go_on_next_turn()

    def when_carried_out(self, done: Callable[[], None]) -> None:
        """Calls `done` when the last change is carried out, at once if it is."""
        wanted = self._queued_by_last_change
        if wanted <= self._ever_queued - len(self._to_make):
            done()
        else:
            self._waiting.append((wanted, done))

    def _apply(self, new: MetadataImage, delta: MetadataDelta) -> None:
        for topic in delta.deleted_topics:
            self._delete_topic(topic)
        room = LOGS_MADE_PER_TURN_MAX
        for topic in delta.created_topics:
            room = self._apply_topic(topic, new, room)
        for _, topic in delta.changed_topics:
            room = self._apply_topic(topic, new, room)
        if any(resource.type == ConfigResourceType.BROKER for resource in delta.configs):
            for topic in new.topics_by_name.values():
                self._configure(topic, new)
        else:
            for resource in delta.configs:
                if resource.type == ConfigResourceType.TOPIC:
                    configured = new.topics_by_name.get(resource.name)
                    if configured is not None:
                        self._configure(configured, new)

    def is_offline(self, topic_id: bytes, partition: int) -> bool:
        """Whether a partition belongs here and is missing because of a disk."""
        key = (topic_id, partition)
        return key in self._away or key in self._not_made

    def fail(self, topic_partitions: list[TopicPartition]) -> None:
        """The disk of these partitions has failed: who waits for them is told."""
        for topic_partition in topic_partitions:
            partition = self._partitions.get(*topic_partition)
            if partition is not None:
                self._waiting_on.refuse(partition, ErrorCode.KAFKA_STORAGE_ERROR)

    def _log_config(self, topic: TopicImage, image: MetadataImage) -> LogConfig:
        return to_log_config(image.topic_configs(topic.name), self._broker_config(image))

    def _configure(self, topic: TopicImage, image: MetadataImage) -> None:
        config = self._log_config(topic, image)
        for partition in self._partitions.of_topic(topic.name):
            self._store.set_config(TopicPartition(topic.name, partition.partition), config)

    def _apply_topic(self, topic: TopicImage, image: MetadataImage, room: int) -> int:
        """Makes at most `room` partitions now and the others later; returns what is left of it.

        Coordinators take over the partitions of internal topics at once: those do not wait.
        """
        config = self._log_config(topic, image)
        never_waits = is_internal(topic.name)
        for partition_image in topic.partitions:
            number = partition_image.partition
            if self._node_id not in partition_image.replicas:
                self._remove(TopicPartition(topic.name, number))
                continue
            if self._partitions.get(topic.name, number) is None:
                if room <= 0 and not never_waits:
                    self._to_make.append((topic.topic_id, number))
                    self._ever_queued += 1
                    continue
                room -= 1
            self._apply_partition(topic, partition_image, config)
        return room

    def _go_on_next_turn(self) -> None:
        if self._to_make and not self._goes_on_next_turn:
            self._goes_on_next_turn = True
            self._call_later(0, self._go_on)

    def _go_on(self) -> None:
        self._goes_on_next_turn = False
        try:
            self._make_some()
        finally:
            self._go_on_next_turn()
        made = self._ever_queued - len(self._to_make)
        while self._waiting and self._waiting[0][0] <= made:
            _, done = self._waiting.popleft()
            try:
                done()
            except Exception:
                self.log.exception("metadata_waiter_failed")

    def _make_some(self) -> None:
        """One turn's share of the partitions that are to be made."""
        configs: dict[bytes, LogConfig] = {}
        for _ in range(min(LOGS_MADE_PER_TURN_MAX, len(self._to_make))):
            topic_id, number = self._to_make.popleft()
            topic = self._image.topics_by_id.get(topic_id)
            if topic is None:
                continue  # deleted since
            config = configs.get(topic_id)
            if config is None:
                config = configs[topic_id] = self._log_config(topic, self._image)
            partition_image = topic.partitions[number]
            if self._node_id in partition_image.replicas:
                self._apply_partition(topic, partition_image, config)

    def _apply_partition(self, topic: TopicImage, image: PartitionImage, config: LogConfig) -> None:
        partition = self._partitions.get(topic.name, image.partition)
        if partition is None:
            topic_partition = TopicPartition(topic.name, image.partition)
            if (topic.topic_id, image.partition) in self._away:
                self.log.error("partition_unavailable", partition=topic_partition)
                return
            try:
                log = self._store.get(topic_partition)
                if log is None:
                    log = self._store.create(topic_partition, topic.topic_id, config)
                else:
                    self._store.set_config(topic_partition, config)
            except ApiError as error:
                # Its disk is full or gone; the partition is offline until it is made.
                self._try_again_later(topic, topic_partition, error)
                return
            partition = Partition(
                topic.name,
                image.partition,
                topic.topic_id,
                self._node_id,
                log,
                self._waiting_on,
                high_watermark=self._store.checkpointed_high_watermarks.get(topic_partition, 0),
            )
            self._partitions.add(partition)
        if image.leader == self._node_id:
            self.on_unfollow(partition)
            partition.lead(image, self._monotonic_ms())
        else:
            partition.follow(image)
            self.on_follow(partition)

    def _try_again_later(
        self, topic: TopicImage, topic_partition: TopicPartition, error: ApiError
    ) -> None:
        key = (topic.topic_id, topic_partition.partition)
        if key not in self._not_made:
            self.log.error("partition_unavailable", partition=topic_partition, error=error)
            if not self._not_made:
                self._call_later(_RETRY_S, self._try_again)
            self._not_made[key] = None

    def _try_again(self) -> None:
        """Make the partitions that the disk had no room for; those that still fail stay."""
        image = self._image
        made = False
        for key in list(self._not_made)[:LOGS_MADE_PER_TURN_MAX]:
            topic_id, number = key
            topic = image.topics_by_id.get(topic_id)
            if topic is not None and self._node_id in topic.partitions[number].replicas:
                config = self._log_config(topic, image)
                self._apply_partition(topic, topic.partitions[number], config)
                if self._partitions.get(topic.name, number) is None:
                    break
                made = True
                self.log.info("partition_available", partition=f"{topic.name}-{number}")
            del self._not_made[key]
        if self._not_made:
            self._call_later(_RETRY_S, self._try_again)
        if made:
            self.on_made_late(image)

    def _delete_topic(self, topic: TopicImage) -> None:
        for image in topic.partitions:
            self._remove(TopicPartition(topic.name, image.partition))

    def _remove(self, topic_partition: TopicPartition) -> None:
        partition = self._partitions.remove(*topic_partition)
        if partition is not None:
            self.on_unfollow(partition)
            partition.stop()
            self._store.delete(topic_partition)
