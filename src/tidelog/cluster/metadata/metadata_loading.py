"""Opening the metadata: its folder, the newest snapshot that is whole, the log from there on."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path

from tidelog.cluster.features import DEFAULT_KRAFT_VERSION
from tidelog.cluster.metadata.metadata_damage import refuse_damage
from tidelog.cluster.metadata.metadata_snapshot import Snapshot, newest_snapshot, write_snapshot
from tidelog.cluster.metadata.replicated_log import ReplicatedLog
from tidelog.cluster.topic_names import CLUSTER_METADATA_TOPIC
from tidelog.errors import TidelogError
from tidelog.protocol.topic_partition import TopicPartition
from tidelog.protocol.uuids import METADATA_TOPIC_ID
from tidelog.raft.raft_log import BOOTSTRAP_SNAPSHOT_ID, SnapshotId, continues_snapshot
from tidelog.raft.voters import VoterNode, VoterSet
from tidelog.storage.directories.partition_metadata import FILE_NAME as PARTITION_METADATA
from tidelog.storage.directories.partition_metadata import write_topic_id
from tidelog.storage.log import Log
from tidelog.storage.log_config import LONG_MAX, LogConfig
from tidelog.storage.log_loading import open_log
from tidelog.world import World

logger = logging.getLogger(__name__)

DIRECTORY_NAME = f"{CLUSTER_METADATA_TOPIC}-0"

# The quorum syncs what it appends, so the log needs no journal.
LOG_CONFIG = LogConfig(
    segment_ms=LONG_MAX,
    segment_index_bytes=1 << 20,
    retention_ms=-1,
    max_message_bytes=1 << 30,
    message_timestamp_after_max_ms=LONG_MAX,
    file_delete_delay_ms=0,
    durability="page-cache",
)


class MetadataLogError(TidelogError):
    """The metadata cannot be loaded; the message says which file is the matter and what to do."""


def open_metadata(
    directory: Path,
    world: World,
    node_id: int,
    founder: VoterNode | None,
    static_voter_ids: Sequence[int] = (),
) -> tuple[Log, SnapshotId, Snapshot]:
    """The log and the newest snapshot, from which it goes on. Without any metadata a new cluster
    begins, with `founder` as its only voter, if there is one.

    Raises MetadataLogError, CorruptFileError, OSError.
    """
    files = world.files
    if not files.exists(directory):
        files.mkdir(directory)
        files.sync_directory(directory.parent)
    if not files.exists(directory / PARTITION_METADATA):
        write_topic_id(files, directory, METADATA_TOPIC_ID, durable=True)
    snapshot_id, snapshot, damaged = newest_snapshot(files, directory)
    refuse_damage(files, directory, snapshot_id.offset, snapshot.voters, node_id, static_voter_ids)
    log = open_log(
        directory,
        TopicPartition(CLUSTER_METADATA_TOPIC, 0),
        LOG_CONFIG,
        world=world,
        topic_id=METADATA_TOPIC_ID,
        recovery_point=snapshot_id.offset,
        contiguous=True,
    )
    if not log.log_end_offset and not snapshot_id.offset:
        if founder is not None and not snapshot.voters:
            snapshot = _begin_cluster(directory, world, founder)
    elif log.log_start_offset <= snapshot_id.offset:
        is_alone = [voter.voter_id for voter in snapshot.voters] == [node_id]
        if log.log_end_offset < snapshot_id.offset or not (
            is_alone or continues_snapshot(ReplicatedLog(world, directory, log), snapshot_id)
        ):
            _go_on_from(directory, log, snapshot_id)
    if log.log_start_offset > snapshot_id.offset:
        log.close()
        raise MetadataLogError(
            f"{directory} begins at offset {log.log_start_offset} and has no usable snapshot "
            f"up to there ({'; '.join(damaged) or 'none is there'}). Restore the snapshot "
            "files (*.checkpoint) of this directory from a copy."
        )
    return log, snapshot_id, snapshot


def _begin_cluster(directory: Path, world: World, founder: VoterNode) -> Snapshot:
    """The first voter is known before there is a log, from the bootstrap snapshot."""
    now_ms = world.wall_ms()
    voters = VoterSet([founder]).to_record().voters
    write_snapshot(
        world.files,
        directory,
        BOOTSTRAP_SNAPSHOT_ID,
        [],
        metadata_version=0,
        timestamp_ms=now_ms,
        now_ms=now_ms,
        kraft_version=DEFAULT_KRAFT_VERSION,
        voters=voters,
        give_way=world.give_way,
    )
    return Snapshot([], now_ms, DEFAULT_KRAFT_VERSION, voters)


def _go_on_from(directory: Path, log: Log, snapshot_id: SnapshotId) -> None:
    """A snapshot of the leader was installed and the old log is still there, or the log has lost
    its end."""
    logger.warning(
        "%s (%d to %d) does not continue its snapshot at %d; going on from the snapshot",
        directory,
        log.log_start_offset,
        log.log_end_offset,
        snapshot_id.offset,
    )
    log.truncate_fully_and_start_at(snapshot_id.offset)
