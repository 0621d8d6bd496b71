import errno
import shutil
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from random import Random

import pytest

from tests.storage.log_making import make_batch
from tidelog.cluster.controller.broker_heartbeats import BrokerHeartbeats
from tidelog.cluster.controller.broker_lifecycle import unfence_broker
from tidelog.cluster.controller.broker_registrations import BrokerRegistration, register_broker
from tidelog.cluster.controller.controller_settings import ControllerSettings
from tidelog.cluster.controller.feature_changes import unserved_features_off
from tidelog.cluster.controller.producer_ids import allocate_producer_ids
from tidelog.cluster.controller.scram_changes import (
    ScramUpsertion,
    alter_user_scram_credentials,
)
from tidelog.cluster.controller.topic_changes import NewTopic
from tidelog.cluster.controller.topic_changes import create_topics as decide_topics
from tidelog.cluster.features import DEFAULT_LEVELS, initial_levels
from tidelog.cluster.metadata.image import Endpoint, MetadataDelta, MetadataImage
from tidelog.cluster.metadata.metadata_loading import (
    DIRECTORY_NAME,
    LOG_CONFIG,
    MetadataLogError,
)
from tidelog.cluster.metadata.metadata_log import MetadataLog
from tidelog.cluster.metadata.metadata_snapshot import (
    list_snapshots,
    part_file_name,
    read_snapshot,
    snapshot_file_name,
)
from tidelog.cluster.metadata.records.brokers import BrokerRegistrationChangeRecord
from tidelog.cluster.metadata.records.framing import RECORD_TYPES, encode_record
from tidelog.cluster.metadata.records.log_control import (
    AbortTransactionRecord,
    BeginTransactionRecord,
    EndTransactionRecord,
)
from tidelog.cluster.metadata.records.settings import (
    ConfigRecord,
    FeatureLevelRecord,
    ProducerIdsRecord,
)
from tidelog.cluster.metadata.records.topics import PartitionChangeRecord, RemoveTopicRecord
from tidelog.cluster.metadata.replicated_log import RESERVE_BYTES, RESERVE_NAME, ReplicatedLog
from tidelog.cluster.metadata.snapshotting import SnapshotOptions
from tidelog.protocol.control_records import decode_control
from tidelog.protocol.errors import ApiError, ErrorCode
from tidelog.protocol.records import Record, decode_batches, encode_batch
from tidelog.protocol.schema import Message
from tidelog.protocol.topic_partition import TopicPartition
from tidelog.protocol.uuids import random_uuid
from tidelog.raft.local_node import LocalNode
from tidelog.raft.raft_log import BOOTSTRAP_SNAPSHOT_ID, SnapshotId
from tidelog.raft.settings import QuorumSettings
from tidelog.raft.voters import Endpoint as VoterEndpoint
from tidelog.raft.voters import Endpoints, ReplicaKey, VoterNode, VoterSet
from tidelog.storage.append_result import Origin
from tidelog.storage.log_loading import open_log
from tidelog.testing.faults import FaultyFiles, PowerCut
from tidelog.testing.inline_world import InlineWorld
from tidelog.world.files import Files
from tidelog.world.operating_system.files import OsFiles

GOLDEN = Path(__file__).parent / "golden" / "kafka-4.3"
DIRECTORY_ID = b"D" * 16
OPTIONS = SnapshotOptions(records_max=10_000, bytes_max=1 << 30, records_max_at_close=10_000)


def opened(
    root: Path,
    files: Files | None = None,
    options: SnapshotOptions = OPTIONS,
    levels: Mapping[str, int] = DEFAULT_LEVELS,
    endpoints: Endpoints = (),
    directory_id: bytes = DIRECTORY_ID,
) -> MetadataLog:
    return MetadataLog.open(
        root / DIRECTORY_NAME,
        node_id=1,
        directory_id=directory_id,
        world=InlineWorld(files, now_ms=1_700_000_000_000),
        endpoints=endpoints,
        options=options,
        initial_levels=levels,
    )


SETTINGS = ControllerSettings(1)


def commit(metadata: MetadataLog, records: Sequence[Message]) -> None:
    """In an inline world a proposal has ended when it is made."""
    metadata.propose(records).committed.result()


def new_topic_records(metadata: MetadataLog, name: str) -> list[Message]:
    topics = [NewTopic(name, 2, configs={"retention.ms": "1000"})]
    random = Random()
    new_id = partial(random_uuid, random)
    return decide_topics(topics, metadata.latest, SETTINGS, random, new_id).records


def register(metadata: MetadataLog, registration: BrokerRegistration) -> int:
    decision = register_broker(
        registration,
        metadata.latest,
        SETTINGS,
        BrokerHeartbeats(),
        now_ms=0,
        next_offset=metadata.next_offset,
    )
    commit(metadata, decision.records)
    return decision.rows


def create_topics(metadata: MetadataLog, *names: str) -> None:
    if not metadata.latest.brokers:
        registration = BrokerRegistration(
            1, b"I" * 16, (Endpoint("PLAINTEXT", "localhost", 9092),), log_dirs=(DIRECTORY_ID,)
        )
        epoch = register(metadata, registration)
        commit(metadata, unfence_broker(1, epoch, metadata.latest, SETTINGS).records)
    for name in names:
        commit(metadata, new_topic_records(metadata, name))


def content(image: MetadataImage) -> MetadataImage:
    """The metadata without the place in the log, which every start moves on."""
    return image.at(0, 0, 0)


def log_records(root: Path) -> list[tuple[bool, Record]]:
    data = (root / DIRECTORY_NAME / "00000000000000000000.log").read_bytes()
    return [
        (header.is_control, record)
        for header, records in decode_batches(data)
        for record in records
    ]


def test_a_new_cluster_begins_as_kafkas_does(tmp_path: Path) -> None:
    metadata = opened(tmp_path)
    assert metadata.image.features == {**DEFAULT_LEVELS, "kraft.version": 1}
    assert (metadata.leader_id, metadata.leader_epoch) == (1, 1)
    assert metadata.high_watermark == metadata.next_offset
    metadata.close()
    control = [decode_control(record) for is_control, record in log_records(tmp_path) if is_control]
    kafka = [
        decode_control(record)
        for header, records in decode_batches((GOLDEN / "00000000000000000000.log").read_bytes())
        if header.is_control
        for record in records
    ]
    assert [type(each) for each in control] == [type(each) for each in kafka]
    assert control[0] == kafka[0]
    assert control[1] == kafka[1]


def frame_of(value: bytes) -> tuple[str, int]:
    """A metadata record's type and version as they stand in the log."""
    _, type_id, version, *_ = value
    return RECORD_TYPES[type_id].__name__, version


@pytest.mark.parametrize("metadata_version", range(7, 31))
def test_a_cluster_writes_what_its_metadata_version_knows_and_reads_it_back(
    tmp_path: Path, metadata_version: int
) -> None:
    """Kafka's MetadataVersion: registerBrokerRecordVersion, partitionRecordVersion and the like."""
    broker = 1 + sum(metadata_version >= since for since in (8, 17, 30))
    partition = sum(metadata_version >= since for since in (17, 23))
    allowed = {"RegisterBrokerRecord": broker, "PartitionRecord": partition}
    allowed |= {"PartitionChangeRecord": partition, "BrokerRegistrationChangeRecord": 1}

    metadata = opened(tmp_path, levels=initial_levels(metadata_version))
    create_topics(metadata, "orders")
    for user in ("alice", "bob"):
        change = ScramUpsertion(user, 1, 4096, b"salt", b"salted")
        commit(metadata, alter_user_scram_credentials([], [change], metadata.latest).records)
    epoch = metadata.latest.brokers[1].epoch
    commit(metadata, allocate_producer_ids(1, epoch, metadata.latest).records)
    unclean = BrokerRegistration(1, b"J" * 16, (), log_dirs=(DIRECTORY_ID,))
    epoch = register(metadata, unclean)
    shutdown = BrokerRegistrationChangeRecord(
        broker_id=1, broker_epoch=epoch, in_controlled_shutdown=1
    )
    commit(metadata, [shutdown])
    image = metadata.image
    metadata.close()

    frames = {
        frame_of(record.value or b"")
        for is_control, record in log_records(tmp_path)
        if not is_control
    }
    assert {"RegisterBrokerRecord", "PartitionRecord", "PartitionChangeRecord"} <= {
        name for name, _ in frames
    }
    assert all(version <= allowed.get(name, 0) for name, version in frames), frames
    assert ("RegisterBrokerRecord", broker) in frames
    assert any(name == "UserScramCredentialRecord" for name, _ in frames) is (
        metadata_version >= 11
    )

    replayed = opened(tmp_path)
    assert content(replayed.image) == content(image)
    assert bool(image.brokers[1].log_dirs) is (metadata_version >= 17)
    replayed.snapshot()
    replayed.close()
    from_snapshot = opened(tmp_path)
    assert content(from_snapshot.image) == content(image)
    from_snapshot.close()


def test_the_levels_of_a_data_directory_stay_as_they_are(tmp_path: Path) -> None:
    opened(tmp_path, levels=initial_levels(25, {"group.version": 0})).close()
    again = opened(tmp_path, levels=initial_levels(30))
    assert again.image.features == {
        "metadata.version": 25,
        "transaction.version": 2,
        "kraft.version": 1,
    }
    again.close()


def test_the_voters_in_the_log_have_the_endpoints_of_the_last_start(tmp_path: Path) -> None:
    here = (VoterEndpoint("PLAINTEXT", "localhost", 9092),)
    metadata = opened(tmp_path, endpoints=here)
    create_topics(metadata, "orders")
    metadata.snapshot()
    metadata.close()
    again = opened(tmp_path, endpoints=here)
    assert again.next_offset == metadata.next_offset + 1  # only the leader's record is new
    (voter,) = again.quorum.voters
    assert voter == VoterNode(ReplicaKey(1, DIRECTORY_ID), here)
    again.close()
    elsewhere = (VoterEndpoint("INSIDE", "here", 1), VoterEndpoint("OUTSIDE", "there", 2))
    opened(tmp_path, endpoints=elsewhere).close()
    third = opened(tmp_path, endpoints=elsewhere)
    (voter,) = third.quorum.voters
    assert voter.endpoints == elsewhere
    assert list(third.image.topics_by_name) == ["orders"]
    third.close()


def test_a_quorum_without_voters_in_its_log_is_this_node(tmp_path: Path) -> None:
    """As in a data directory of a Kafka with static voters, kraft.version 0."""
    directory = tmp_path / DIRECTORY_NAME
    world = InlineWorld(now_ms=1)
    key = ReplicaKey(1, DIRECTORY_ID)
    here = (VoterEndpoint("PLAINTEXT", "localhost", 9092),)
    metadata = MetadataLog.load(directory, world=world, node_id=1)
    voters = VoterSet([VoterNode(ReplicaKey(1), here)])
    metadata.join(LocalNode(key, here, "PLAINTEXT", "c", static_voters=voters), QuorumSettings())
    metadata.settle_start()
    assert metadata.is_active
    assert metadata.image.finalized_level("kraft.version") == 0
    metadata.snapshot()
    metadata.close()
    again = opened(tmp_path, endpoints=here)
    assert again.image.finalized_level("kraft.version") == 0
    (voter,) = again.quorum.voters
    assert (voter.key.id, voter.endpoints[0].port) == (1, 9092)
    assert again.propose([], kraft_version=1).committed.is_done
    assert again.image.finalized_level("kraft.version") == 1
    again.close()
    third = opened(tmp_path, endpoints=here)
    assert third.image.finalized_level("kraft.version") == 1
    assert list(third.quorum.voters) == [VoterNode(key, here)]
    third.close()


def test_what_was_submitted_is_there_after_a_restart_and_the_epoch_is_new(tmp_path: Path) -> None:
    metadata = opened(tmp_path)
    create_topics(metadata, "orders", "payments")
    before = metadata.image
    assert before.brokers[1].epoch == 7
    metadata.close()
    again = opened(tmp_path)
    assert content(again.image) == content(before)
    assert again.leader_epoch == 2
    assert again.image.offset == before.offset + 1
    again.close()


def test_a_decision_is_one_batch(tmp_path: Path) -> None:
    metadata = opened(tmp_path)
    create_topics(metadata, "orders")
    data = (tmp_path / DIRECTORY_NAME / "00000000000000000000.log").read_bytes()
    sizes = [header.record_count for header, _ in decode_batches(data)]
    assert sizes == [3, 4, 1, 1, 4]
    metadata.close()


def test_listeners_hear_of_it_before_the_one_who_proposed(tmp_path: Path) -> None:
    metadata = opened(tmp_path)
    create_topics(metadata)
    heard: list[str] = []

    def listen(old: MetadataImage, new: MetadataImage, delta: MetadataDelta) -> None:
        assert metadata.image is new
        names = ",".join(topic.name for topic in delta.created_topics)
        heard.append(f"listener {old.offset}->{new.offset}: {names}")

    metadata.listeners.append(listen)
    offset = metadata.image.offset
    proposal = metadata.propose(new_topic_records(metadata, "orders"))
    proposal.committed.when_done(lambda _: heard.append("committed"))
    last = metadata.image.offset
    assert last == offset + 4
    assert heard == [f"listener {offset}->{last}: orders", "committed"]
    assert metadata.propose([]).committed.is_done
    metadata.close()


def test_a_decision_made_by_a_listener_waits_its_turn(tmp_path: Path) -> None:
    metadata = opened(tmp_path)
    create_topics(metadata)
    heard: list[tuple[str, int, int]] = []

    def first(old: MetadataImage, new: MetadataImage, delta: MetadataDelta) -> None:
        heard.append(("first", old.next_producer_id, new.next_producer_id))
        if new.next_producer_id == 1000:
            metadata.propose([ProducerIdsRecord(broker_id=1, next_producer_id=2000)])
            assert metadata.latest.next_producer_id == 2000
            assert metadata.image.next_producer_id == 1000

    def second(old: MetadataImage, new: MetadataImage, delta: MetadataDelta) -> None:
        heard.append(("second", old.next_producer_id, new.next_producer_id))

    metadata.listeners += [first, second]
    commit(metadata, [ProducerIdsRecord(broker_id=1, next_producer_id=1000)])
    assert heard == [
        ("first", 0, 1000),
        ("second", 0, 1000),
        ("first", 1000, 2000),
        ("second", 1000, 2000),
    ]
    metadata.close()


def test_records_that_cannot_be_applied_do_not_get_into_the_log(tmp_path: Path) -> None:
    metadata = opened(tmp_path)
    offset = metadata.next_offset
    with pytest.raises(Exception, match="no topic with id"):
        metadata.propose([PartitionChangeRecord(topic_id=b"?" * 16)])
    assert metadata.next_offset == offset
    metadata.close()
    opened(tmp_path).close()


def test_a_snapshot_replaces_the_log_before_it(tmp_path: Path) -> None:
    metadata = opened(tmp_path)
    create_topics(metadata, "orders")
    first = metadata.snapshot().result()
    assert first == SnapshotId(metadata.image.offset + 1, 1)
    assert snapshot_file_name(first) == f"{first.offset:020d}-0000000001.checkpoint"
    create_topics(metadata, "payments")
    second = metadata.snapshot().result()
    create_topics(metadata, "refunds")
    third = metadata.snapshot().result()
    create_topics(metadata, "tail")
    before = metadata.image
    directory = tmp_path / DIRECTORY_NAME
    assert list_snapshots(OsFiles(), directory) == [third, second]
    assert metadata.log.log_start_offset == second.offset
    assert not (directory / "00000000000000000000.log").exists()
    metadata.close()
    again = opened(tmp_path)
    assert content(again.image) == content(before)
    assert again.quorum.voters == metadata.quorum.voters
    again.close()


def test_removals_are_known_until_the_logs_of_the_topics_are_gone(tmp_path: Path) -> None:
    metadata = opened(tmp_path)
    create_topics(metadata, "orders", "payments")
    topic_id = metadata.image.topics_by_name["orders"].topic_id
    are_gone = False
    metadata.may_forget_removals = lambda: are_gone
    commit(metadata, [RemoveTopicRecord(topic_id=topic_id)])
    for number in range(1, 4):
        metadata.snapshot()
        assert metadata.removed_topic_ids() == {topic_id}
        commit(metadata, [ProducerIdsRecord(next_producer_id=number * 1000)])
    metadata.close()
    again = opened(tmp_path)
    assert "orders" not in again.image.topics_by_name
    assert again.removed_topic_ids() == {topic_id}
    again.snapshot()
    assert again.removed_topic_ids() == frozenset()
    again.close()


def test_snapshots_come_by_records_and_by_time(tmp_path: Path) -> None:
    options = SnapshotOptions(records_max=8, records_max_at_close=1, interval_ms=1000)
    metadata = opened(tmp_path, options=options)
    create_topics(metadata, "orders")
    directory = tmp_path / DIRECTORY_NAME

    def taken() -> list[SnapshotId]:
        found = list_snapshots(OsFiles(), directory)
        return [each for each in found if each != BOOTSTRAP_SNAPSHOT_ID]

    assert len(taken()) == 1
    metadata.snapshot_if_due(1_700_000_000_000 + 5000)
    assert len(taken()) == 1
    commit(metadata, [ProducerIdsRecord(next_producer_id=1000)])
    metadata.snapshot_if_due(1_700_000_000_000 + 500)
    assert len(taken()) == 1
    metadata.snapshot_if_due(1_700_000_000_000 + 5000)
    assert len(taken()) == 2
    commit(metadata, [ProducerIdsRecord(next_producer_id=2000)])
    offset = metadata.next_offset
    metadata.close()
    assert list_snapshots(OsFiles(), directory)[0].offset == offset


def cut_short(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-10])


def flip_a_bit(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 4
    path.write_bytes(data)


def without_footer(path: Path) -> None:
    data = path.read_bytes()
    footer = [header.size_bytes for header, _ in decode_batches(data)][-1]
    path.write_bytes(data[:-footer])


@pytest.mark.parametrize("damage", [cut_short, flip_a_bit, without_footer])
def test_a_damaged_snapshot_falls_back_to_the_older_one(
    tmp_path: Path, damage: Callable[[Path], None], caplog: pytest.LogCaptureFixture
) -> None:
    metadata = opened(tmp_path)
    create_topics(metadata, "orders")
    metadata.snapshot()
    create_topics(metadata, "payments")
    newest = metadata.snapshot().result()
    create_topics(metadata, "refunds")
    before = metadata.image
    metadata.close()
    path = tmp_path / DIRECTORY_NAME / snapshot_file_name(newest)
    damage(path)
    again = opened(tmp_path)
    assert content(again.image) == content(before)
    assert str(path) in caplog.text
    again.close()


def test_without_any_whole_snapshot_the_start_is_refused_by_name(tmp_path: Path) -> None:
    metadata = opened(tmp_path)
    for name in ("orders", "payments", "refunds"):
        create_topics(metadata, name)
        metadata.snapshot()
    metadata.close()
    directory = tmp_path / DIRECTORY_NAME
    for snapshot_id in list_snapshots(OsFiles(), directory):
        flip_a_bit(directory / snapshot_file_name(snapshot_id))
    with pytest.raises(MetadataLogError, match=r"no usable snapshot.*Restore") as caught:
        opened(tmp_path)
    assert str(directory) in str(caught.value)


def test_a_lost_log_goes_on_from_the_snapshot(tmp_path: Path) -> None:
    metadata = opened(tmp_path)
    create_topics(metadata, "orders")
    snapshot_id = metadata.snapshot().result()
    before = metadata.image
    metadata.close()
    directory = tmp_path / DIRECTORY_NAME
    for path in directory.glob("*.log"):
        path.unlink()
    again = opened(tmp_path)
    assert content(again.image) == content(before)
    assert again.next_offset == snapshot_id.offset + 1
    create_topics(again, "payments")
    again.close()
    final = opened(tmp_path)
    assert set(final.image.topics_by_name) == {"orders", "payments"}
    final.close()


def test_half_a_snapshot_is_removed(tmp_path: Path) -> None:
    opened(tmp_path).close()
    part = tmp_path / DIRECTORY_NAME / part_file_name(SnapshotId(5, 1))
    part.write_bytes(b"half")
    opened(tmp_path).close()
    assert not part.exists()


@pytest.mark.parametrize(
    ("feature", "level", "known"), [("metadata.version", 99, "7-30"), ("group.version", 2, "0-1")]
)
def test_levels_that_this_software_lacks_are_refused(
    tmp_path: Path, feature: str, level: int, known: str
) -> None:
    metadata = opened(tmp_path)
    commit(metadata, [FeatureLevelRecord(name=feature, feature_level=level)])
    metadata.close()
    with pytest.raises(
        MetadataLogError, match=rf"{feature} {level}; this software supports {known}\. "
    ):
        opened(tmp_path)


def test_kinds_of_groups_that_are_not_served_may_be_switched_on(tmp_path: Path) -> None:
    """As they are in a directory of Kafka 4.3; its topics and other groups are served."""
    metadata = opened(tmp_path)
    commit(metadata, [FeatureLevelRecord(name="share.version", feature_level=1)])
    metadata.close()
    again = opened(tmp_path)
    assert again.image.finalized_level("share.version") == 1
    records = unserved_features_off(again.image)
    commit(again, records)
    assert again.image.finalized_level("share.version") == 0
    assert unserved_features_off(again.image) == []
    again.close()


def test_transactions_in_the_log_count_when_they_end(tmp_path: Path) -> None:
    """Tidelog writes none, a log of Kafka has one at its start."""
    metadata = opened(tmp_path)

    def write(*messages: object) -> None:
        records = [
            Record(index, 0, None, encode_record(message, 25))  # type: ignore[arg-type]
            for index, message in enumerate(messages)
        ]
        metadata.log.append_as_leader(
            memoryview(encode_batch(records)), metadata.leader_epoch, 0, origin=Origin.RAFT
        )

    write(
        BeginTransactionRecord(name="lost"),
        ProducerIdsRecord(next_producer_id=5000),
        AbortTransactionRecord(),
    )
    write(BeginTransactionRecord(name="kept"), ProducerIdsRecord(next_producer_id=3000))
    write(EndTransactionRecord())
    write(BeginTransactionRecord(name="never ended"), ProducerIdsRecord(next_producer_id=9000))
    metadata.close()
    again = opened(tmp_path)
    assert again.image.next_producer_id == 3000
    # What is written now does not belong to the transaction that was left open.
    commit(again, [ProducerIdsRecord(next_producer_id=4000)])
    again.close()
    assert opened(tmp_path).image.next_producer_id == 4000


def test_the_metadata_of_a_real_kafka_is_taken_over(tmp_path: Path) -> None:
    shutil.copytree(GOLDEN, tmp_path / DIRECTORY_NAME)
    (kafka,) = read_snapshot(OsFiles(), tmp_path / DIRECTORY_NAME, BOOTSTRAP_SNAPSHOT_ID).voters
    metadata = opened(tmp_path, directory_id=kafka.voter_directory_id)
    image = metadata.image
    assert image.features == {
        "metadata.version": 25,
        "group.version": 1,
        "transaction.version": 2,
        "kraft.version": 1,
    }
    assert list(image.topics_by_name) == ["orders"]
    assert [each.leader for each in image.topics_by_name["orders"].partitions] == [-1, -1, -1]
    assert image.topic_configs("orders") == {"cleanup.policy": "compact,delete"}
    assert image.next_producer_id == 1000
    assert image.client_quotas == {
        (("client-id", None), ("user", "alice")): {
            "producer_byte_rate": 1000.0,
            "request_percentage": 50.5,
        }
    }
    assert set(image.scram) == {("alice", 1)}
    assert [acl.principal for acl in image.acls.values()] == ["User:alice"]
    assert [voter.key.id for voter in metadata.quorum.voters] == [1]
    # The broker comes back under this software and leads again.
    known = image.brokers[1]
    registration = BrokerRegistration(
        1, b"I" * 16, (), log_dirs=known.log_dirs, previous_epoch=known.epoch
    )
    epoch = register(metadata, registration)
    commit(metadata, unfence_broker(1, epoch, metadata.latest, SETTINGS).records)
    partition = metadata.image.topics_by_name["orders"].partitions[0]
    assert (partition.leader, partition.leader_epoch) == (1, 2)
    before = metadata.image
    metadata.snapshot()
    metadata.close()
    again = opened(tmp_path)
    assert content(again.image) == content(before)
    again.close()


def test_a_full_disk_refuses_a_decision_and_nothing_has_changed(tmp_path: Path) -> None:
    files = FaultyFiles(tmp_path)
    metadata = opened(tmp_path, files)
    create_topics(metadata, "orders")
    before, offset = metadata.image, metadata.next_offset
    files.space_bytes = files.used_bytes
    with pytest.raises(ApiError) as caught:
        create_topics(metadata, "payments")
    assert caught.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    assert metadata.image is metadata.latest is before
    files.heal()
    create_topics(metadata, "payments")
    assert metadata.next_offset == offset + 4
    metadata.close()
    again = opened(tmp_path)
    assert set(again.image.topics_by_name) == {"orders", "payments"}
    again.close()


def test_on_a_full_disk_decisions_take_room_from_the_reserve_and_leave_half_of_it(
    tmp_path: Path,
) -> None:
    """So topics can be deleted, and a node that leads no more can hear what another decides."""
    files = FaultyFiles(tmp_path)
    metadata = opened(tmp_path, files)
    create_topics(metadata, "orders")
    metadata.fill_reserve()
    reserve = tmp_path / DIRECTORY_NAME / RESERVE_NAME
    assert reserve.stat().st_size == RESERVE_BYTES
    files.space_bytes = files.used_bytes
    topic = metadata.image.topics_by_name["orders"]
    commit(metadata, [RemoveTopicRecord(topic_id=topic.topic_id)])
    assert not metadata.image.topics_by_name
    assert reserve.stat().st_size == RESERVE_BYTES - 4096
    config = ConfigRecord(resource_type=4, resource_name="1", name="x", value="y" * 30_000)
    with pytest.raises(ApiError) as caught:
        for _ in range(100):
            commit(metadata, [config])
    assert caught.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    assert reserve.stat().st_size == RESERVE_BYTES // 2
    metadata.fill_reserve()
    assert reserve.stat().st_size == RESERVE_BYTES // 2
    files.heal()
    metadata.fill_reserve()
    assert reserve.stat().st_size == RESERVE_BYTES
    metadata.close()
    again = opened(tmp_path)
    assert not again.image.topics_by_name
    again.close()


def test_a_vote_takes_room_from_the_reserve(tmp_path: Path) -> None:
    """A node that cannot write down an epoch hears of no leader of it."""
    files = FaultyFiles(tmp_path)
    metadata = opened(tmp_path, files)
    create_topics(metadata, "orders")
    metadata.close()
    files.space_bytes = files.used_bytes
    with pytest.raises(ApiError, match="No space"):
        opened(tmp_path, files)
    files.heal()
    metadata = opened(tmp_path, files)
    metadata.fill_reserve()
    metadata.close()
    files.space_bytes = files.used_bytes
    again = opened(tmp_path, files)
    assert again.is_active
    assert set(again.image.topics_by_name) == {"orders"}
    again.close()


def test_a_follower_takes_room_from_all_of_the_reserve(tmp_path: Path) -> None:
    files = FaultyFiles(tmp_path)
    world = InlineWorld(files)
    files.mkdir(tmp_path / "log")
    partition = TopicPartition("__cluster_metadata", 0)
    log = open_log(tmp_path / "log", partition, LOG_CONFIG, world=world, clean=True)
    replicated = ReplicatedLog(world, tmp_path / "log", log)
    replicated.reserve.fill()
    replicated.append_as_follower(make_batch(leader_epoch=1))  # an epoch is a file of its own
    # What an earlier life has kept is there for this one.
    replicated = ReplicatedLog(world, tmp_path / "log", log)
    files.space_bytes = files.used_bytes
    with pytest.raises(ApiError):
        while True:
            replicated.append_as_follower(
                make_batch(value=bytes(50_000), base_offset=log.log_end_offset, leader_epoch=1)
            )
    assert log.size_bytes > RESERVE_BYTES - 60_000
    assert (tmp_path / "log" / RESERVE_NAME).stat().st_size == 0
    assert replicated.reserve.held_bytes == 0


def test_after_a_failed_sync_nothing_more_is_decided(tmp_path: Path) -> None:
    files = FaultyFiles(tmp_path)
    metadata = opened(tmp_path, files)
    create_topics(metadata, "orders")
    before = metadata.image
    files.fail(tmp_path / DIRECTORY_NAME, only="sync", error=errno.EIO)
    for name in ("payments", "refunds"):
        with pytest.raises(ApiError, match="has to be restarted") as caught:
            create_topics(metadata, name)
        assert caught.value.code is ErrorCode.KAFKA_STORAGE_ERROR
        files.heal()
    assert metadata.image is before


def test_a_snapshot_that_fails_costs_nothing_but_time(tmp_path: Path) -> None:
    files = FaultyFiles(tmp_path)
    metadata = opened(tmp_path, files)
    create_topics(metadata, "orders")
    files.space_bytes = files.used_bytes
    metadata.snapshot()
    files.heal()
    create_topics(metadata, "payments")
    metadata.close()
    again = opened(tmp_path)
    assert set(again.image.topics_by_name) == {"orders", "payments"}
    again.close()


def test_a_power_cut_at_any_moment_loses_no_committed_decision(tmp_path: Path) -> None:
    names = [f"topic-{number}" for number in range(6)]
    options = SnapshotOptions(records_max=9)

    def history(files: FaultyFiles, committed: list[str]) -> None:
        metadata = opened(files.root, files, options)
        for name in names:
            create_topics(metadata, name)
            committed.append(name)
        metadata.close()

    rehearsal = FaultyFiles(tmp_path / "rehearsal")
    history(rehearsal, [])
    assert rehearsal.operations > 50
    for cut_after in range(0, rehearsal.operations, 3):
        files = FaultyFiles(tmp_path / "before")
        files.cut_after = cut_after
        committed: list[str] = []
        with pytest.raises(PowerCut):
            history(files, committed)
        found = files.power_cut(tmp_path / "after", seed=cut_after)
        metadata = opened(found.root, found, options)
        # A decision that was under way may be there too, whole; none after it.
        there = list(metadata.image.topics_by_name)
        assert there in (committed, names[: len(committed) + 1])
        for topic in metadata.image.topics_by_name.values():
            assert len(topic.partitions) == 2
        create_topics(metadata, "after")
        metadata.close()
        shutil.rmtree(tmp_path / "before")


def test_a_snapshot_that_meets_a_bug_is_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else the end of the node would wait for it for ever."""
    metadata = opened(tmp_path)

    def fail(_: object) -> None:
        raise KeyError("a bug")

    with monkeypatch.context() as patch:
        patch.setattr(metadata.log.local, "prepare_flush", fail)
        with pytest.raises(KeyError, match="a bug"):
            metadata.snapshot()
    assert metadata.snapshot().result().offset == metadata.high_watermark
    metadata.close()


def test_records_that_were_lost_before_a_new_segment_end_the_log(tmp_path: Path) -> None:
    """A snapshot rolled the log while records were not synced, and then the power went."""
    metadata = opened(tmp_path)
    create_topics(metadata, "orders")
    end_offset = metadata.snapshot().result().offset
    metadata.close()
    (tmp_path / DIRECTORY_NAME / f"{end_offset + 3:020d}.log").touch()
    metadata = opened(tmp_path)
    assert "orders" in metadata.image.topics_by_name
    create_topics(metadata, "payments")
    metadata.close()
    metadata = opened(tmp_path)
    assert set(metadata.image.topics_by_name) == {"orders", "payments"}
    metadata.close()


def test_the_time_of_an_image_is_that_of_the_newest_decision_on_every_node(tmp_path: Path) -> None:
    """Whoever replays the log has the same image as the leader, whose clock may go back."""

    def open_at(now_ms: int) -> tuple[MetadataLog, InlineWorld]:
        world = InlineWorld(now_ms=now_ms)
        return MetadataLog.open(
            tmp_path / DIRECTORY_NAME,
            node_id=1,
            directory_id=DIRECTORY_ID,
            world=world,
            options=OPTIONS,
        ), world

    metadata, world = open_at(5_000)
    create_topics(metadata, "orders")
    world.now_ms = 2_000
    create_topics(metadata, "payments")
    assert metadata.image.timestamp_ms == 5_000
    metadata.close()
    # The control records of the next start are newer than the decisions.
    for now_ms in (9_000, 10_000):
        metadata, _ = open_at(now_ms)
        assert metadata.image.timestamp_ms == 5_000
        metadata.close()


def test_a_log_that_cannot_be_read_ends_the_node_and_is_no_bug(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    metadata = opened(tmp_path)
    create_topics(metadata, "orders")
    told: list[BaseException] = []
    metadata._on_crash = lambda _, error: told.append(error)
    metadata.is_active = False  # as on a follower

    def fail(*_: object) -> None:
        raise OSError(errno.EIO, "input/output error")

    monkeypatch.setattr(metadata._replay, "read", fail)
    metadata.committed(metadata.log.log_end_offset + 1)
    (error,) = told
    assert isinstance(error, MetadataLogError)
    assert "cannot be read" in str(error)
