"""Proposals in flight: the disk is slow, fails, or the power goes before they are committed."""

import errno
import itertools
import shutil
from collections import deque
from functools import partial
from pathlib import Path

import pytest

from tidelog.cluster.metadata import metadata_log, proposal
from tidelog.cluster.metadata.image import MetadataDelta, MetadataImage
from tidelog.cluster.metadata.metadata_loading import DIRECTORY_NAME
from tidelog.cluster.metadata.metadata_log import MetadataLog
from tidelog.cluster.metadata.metadata_snapshot import list_snapshots
from tidelog.cluster.metadata.proposal import Proposal
from tidelog.cluster.metadata.records.settings import ConfigRecord, ProducerIdsRecord
from tidelog.cluster.metadata.snapshotting import SnapshotOptions
from tidelog.promise import Promise
from tidelog.protocol.errors import ApiError
from tidelog.protocol.records import decode_batches
from tidelog.raft.local_node import LocalNode
from tidelog.raft.settings import QuorumSettings
from tidelog.raft.voters import ReplicaKey, VoterNode, VoterSet
from tidelog.testing.faults import FaultyFiles, PowerCut
from tidelog.testing.inline_world import InlineWorld
from tidelog.world.files import Files
from tidelog.world.workers import Job, OnCrash, Worker

DIRECTORY_ID = b"D" * 16
OPTIONS = SnapshotOptions(records_max=10_000, bytes_max=1 << 30, records_max_at_close=10_000)


class HeldWorker:
    """A worker that does its jobs when it is told to."""

    def __init__(self, name: str, on_crash: OnCrash) -> None:
        self._name = name
        self._on_crash = on_crash
        self.jobs: deque[Job] = deque()
        self.submit = self.jobs.append

    def drain(self) -> None:
        while self.jobs:
            self.run_one()

    close = drain

    def run_one(self) -> None:
        try:
            self.jobs.popleft()()
        except PowerCut:
            raise
        except Exception as error:  # noqa: BLE001 - as a worker does it
            self._on_crash(self._name, error)


class HeldWorld(InlineWorld):
    """An inline world whose workers wait, and with counted syncs of data."""

    def __init__(self, files: Files) -> None:
        super().__init__(files, now_ms=1_700_000_000_000)
        self.workers: list[HeldWorker] = []
        self.crashes: list[str] = []
        self.gave_way = 0

    def give_way(self) -> None:
        self.gave_way += 1

    def start_worker(self, name: str, on_crash: OnCrash) -> Worker:
        worker = HeldWorker(name, lambda name, error: self.crashes.append(f"{error}"))
        self.workers.append(worker)
        return worker

    @property
    def syncs(self) -> HeldWorker:
        return self.workers[0]

    @property
    def snapshots(self) -> HeldWorker:
        return self.workers[1]


class Log:
    """A metadata log in a held world; what its listeners raise is counted."""

    def __init__(
        self,
        root: Path,
        options: SnapshotOptions = OPTIONS,
        *,
        space_left: bool = True,
        files: FaultyFiles | None = None,
        is_static: bool = False,
    ) -> None:
        self.files = files or FaultyFiles(root)
        self.files.space_bytes = None if space_left else self.files.used_bytes
        self.directory = root / DIRECTORY_NAME
        self.world = HeldWorld(self.files)
        self.exceptions = 0
        self.heard: list[int] = []
        if is_static:
            self._begin_with_static_voters()

        def on_exception() -> None:
            self.exceptions += 1

        self.metadata = MetadataLog.open(
            self.directory,
            node_id=1,
            directory_id=DIRECTORY_ID,
            world=self.world,
            on_exception=on_exception,
            options=options,
        )
        self.metadata.settle()
        self.metadata.listeners.append(self._listen)

    def _begin_with_static_voters(self) -> None:
        """As a Kafka of kraft.version 0 does it: the log names no voters."""
        voters = VoterSet([VoterNode(ReplicaKey(1), ())])
        local = LocalNode(ReplicaKey(1, DIRECTORY_ID), (), "", "", static_voters=voters)
        metadata = MetadataLog.load(self.directory, world=HeldWorld(self.files), node_id=1)
        metadata.join(local, QuorumSettings())
        metadata.settle_start()
        metadata.close()

    def _listen(self, old: MetadataImage, new: MetadataImage, delta: MetadataDelta) -> None:
        self.heard.append(new.next_producer_id)

    def propose(self, next_producer_id: int) -> Proposal:
        return self.metadata.propose([ProducerIdsRecord(next_producer_id=next_producer_id)])

    def batch_sizes(self) -> list[int]:
        """How many records each batch of decisions has, after those of the first start."""
        data = (self.directory / f"{0:020}.log").read_bytes()
        return [header.record_count for header, _ in decode_batches(data) if not header.is_control][
            1:
        ]


@pytest.fixture
def log(tmp_path: Path) -> Log:
    return Log(tmp_path)


def code_of(each: Proposal) -> str:
    """How a proposal has ended."""
    if not each.committed.is_done:
        return "in flight"
    error = each.committed.error
    assert error is None or isinstance(error, ApiError)
    return "committed" if error is None else error.code.name


def test_a_proposal_does_not_wait_for_the_disk_and_commits_when_it_is_synced(log: Log) -> None:
    first = log.propose(1000)
    metadata = log.metadata
    assert (metadata.image.next_producer_id, metadata.latest.next_producer_id) == (0, 1000)
    assert metadata.high_watermark == metadata.next_offset - 1
    assert (code_of(first), log.heard) == ("in flight", [])
    log.world.syncs.run_one()
    assert (code_of(first), log.heard) == ("committed", [1000])
    assert metadata.image is metadata.latest


def test_proposals_that_are_made_while_a_sync_runs_share_the_next_one(log: Log) -> None:
    settled: list[int] = []

    def settled_as(number: int, _: Promise[None]) -> None:
        settled.append(number)

    proposals = [log.propose(number) for number in (1000, 2000, 3000, 4000)]
    for number, each in enumerate(proposals):
        each.committed.when_done(partial(settled_as, number))
    log.world.syncs.run_one()
    assert [code_of(each) for each in proposals] == ["committed", *["in flight"] * 3]
    log.world.syncs.run_one()
    assert [code_of(each) for each in proposals] == ["committed"] * 4
    assert settled == [0, 1, 2, 3]
    assert log.heard == [1000, 2000, 3000, 4000]
    assert log.batch_sizes() == [1, 3]
    assert not log.world.syncs.jobs


def test_a_batch_has_a_limit(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(proposal, "RECORDS_PER_BATCH_MAX", 3)
    for number in range(1, 9):
        log.propose(number * 1000)
    log.metadata.settle()
    assert log.batch_sizes() == [1, 3, 3, 1]


def test_so_much_may_wait_and_no_more(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metadata_log, "WAITING_RECORDS_MAX", 2)
    proposals = [log.propose(number * 1000) for number in range(1, 5)]
    assert code_of(proposals[-1]) == "KAFKA_STORAGE_ERROR"
    assert log.metadata.latest.next_producer_id == 3000
    log.metadata.settle()
    assert [code_of(each) for each in proposals[:3]] == ["committed"] * 3
    assert code_of(log.propose(9000)) == "in flight"


def test_a_failed_sync_fails_all_that_was_built_on_it_and_takes_it_back(log: Log) -> None:
    committed = log.metadata.image
    proposals = [log.propose(number) for number in (1000, 2000, 3000)]
    log.files.fail(log.directory, only="sync", error=errno.EIO)
    log.world.syncs.run_one()
    assert {code_of(each) for each in proposals} == {"KAFKA_STORAGE_ERROR"}
    assert log.metadata.image is log.metadata.latest is committed
    assert log.heard == []
    log.files.heal()
    assert code_of(log.propose(4000)) == "KAFKA_STORAGE_ERROR"
    assert not log.world.syncs.jobs


def test_a_full_disk_fails_what_is_in_flight_and_later_there_is_room(log: Log) -> None:
    first = log.propose(1000)
    others = [log.propose(number) for number in (2000, 3000)]
    log.files.space_bytes = log.files.used_bytes
    log.world.syncs.run_one()
    # The first is on disk; those behind it find no room.
    assert code_of(first) == "committed"
    assert {code_of(each) for each in others} == {"KAFKA_STORAGE_ERROR"}
    assert log.metadata.latest is log.metadata.image
    assert log.metadata.image.next_producer_id == 1000
    # What is asked now is answered from what is committed, and not from what has failed.
    assert code_of(log.metadata.propose([])) == "committed"
    log.files.heal()
    again = log.propose(4000)
    log.metadata.settle()
    assert code_of(again) == "committed"
    log.metadata.close()
    reopened = Log(log.files.root)
    assert reopened.metadata.image.next_producer_id == 4000


def test_a_proposal_made_by_a_listener_that_fails_leaves_what_is_committed(log: Log) -> None:
    """The others of its group are committed already, though nobody has been told of them."""

    def full_disk(old: MetadataImage, new: MetadataImage, delta: MetadataDelta) -> None:
        if new.next_producer_id == 2000:
            log.files.space_bytes = log.files.used_bytes
            assert code_of(log.propose(9000)) == "KAFKA_STORAGE_ERROR"

    log.metadata.listeners.append(full_disk)
    proposals = [log.propose(number) for number in (1000, 2000, 3000)]
    log.metadata.settle()
    assert [code_of(each) for each in proposals] == ["committed"] * 3
    assert log.metadata.latest is log.metadata.image
    assert log.metadata.image.next_producer_id == 3000


def test_who_resigns_fails_what_is_in_flight_and_takes_no_more(log: Log) -> None:
    committed = log.metadata.image
    proposals = [log.propose(number) for number in (1000, 2000)]
    log.metadata.quorum.resign()
    assert {code_of(each) for each in proposals} == {"NOT_CONTROLLER"}
    assert log.metadata.latest is log.metadata.image is committed
    log.world.syncs.run_one()
    assert (log.metadata.image, log.heard) == (committed, [])
    assert code_of(log.propose(3000)) == "NOT_CONTROLLER"
    assert code_of(log.metadata.propose([])) == "NOT_CONTROLLER"


def test_an_answer_from_what_is_not_committed_waits_for_it(log: Log) -> None:
    assert code_of(log.metadata.propose([])) == "committed"
    log.propose(1000)
    question = log.metadata.propose([])
    assert code_of(question) == "in flight"
    log.world.syncs.run_one()
    assert code_of(question) == "committed"
    log.propose(2000)
    question = log.metadata.propose([])
    log.files.fail(log.directory, only="sync", error=errno.EIO)
    log.world.syncs.run_one()
    assert code_of(question) == "KAFKA_STORAGE_ERROR"


def test_a_listener_that_raises_keeps_nothing_from_others(log: Log) -> None:
    later: list[int] = []

    def raising(old: MetadataImage, new: MetadataImage, delta: MetadataDelta) -> None:
        raise RuntimeError("a bug")

    log.metadata.listeners.insert(0, raising)
    log.metadata.listeners.append(lambda old, new, delta: later.append(new.next_producer_id))
    proposals = [log.propose(number) for number in (1000, 2000)]
    log.metadata.settle()
    assert [code_of(each) for each in proposals] == ["committed"] * 2
    assert log.heard == later == [1000, 2000]
    assert log.exceptions == 2


@pytest.mark.parametrize("fails", [False, True])
def test_one_who_waits_and_raises_keeps_nothing_from_others(log: Log, fails: bool) -> None:
    told: list[str] = []

    def raising(_: object) -> None:
        raise RuntimeError("a bug")

    def tell(each: Proposal, _: Promise[None]) -> None:
        told.append(code_of(each))

    proposals = [log.propose(number) for number in (1000, 2000)]
    for each in proposals:
        each.committed.when_done(raising)
        each.committed.when_done(partial(tell, each))
    if fails:
        log.metadata.quorum.resign()
    log.metadata.settle()
    assert told == ["NOT_CONTROLLER" if fails else "committed"] * 2
    assert log.exceptions == 2


def test_a_bug_beside_the_loop_fails_what_is_in_flight_and_ends_the_node(
    log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    def bug(_: int) -> None:
        raise RuntimeError("a bug")

    proposals = [log.propose(number) for number in (1000, 2000)]
    monkeypatch.setattr(log.files, "fdatasync", bug)
    log.world.syncs.run_one()
    assert {code_of(each) for each in proposals} == {"KAFKA_STORAGE_ERROR"}
    assert log.world.crashes == ["a bug"]


def test_a_bug_in_an_append_fails_what_is_in_flight_and_keeps_nobody_waiting(
    log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    def bug(*_: object, **__: object) -> None:
        raise RuntimeError("a bug")

    first = log.propose(1000)
    others = [log.propose(number) for number in (2000, 3000)]
    monkeypatch.setattr(log.metadata.log, "append_as_leader", bug)
    log.world.syncs.run_one()
    assert log.world.crashes == ["a bug"]
    assert code_of(first) == "committed"
    assert {code_of(each) for each in others} == {"KAFKA_STORAGE_ERROR"}
    assert code_of(log.propose(4000)) == "KAFKA_STORAGE_ERROR"
    log.metadata.close()


def test_a_close_waits_for_what_is_in_flight(log: Log) -> None:
    proposals = [log.propose(number) for number in (1000, 2000)]
    log.metadata.close()
    assert [code_of(each) for each in proposals] == ["committed"] * 2
    assert code_of(log.propose(3000)) == "NOT_CONTROLLER"
    assert Log(log.files.root).metadata.image.next_producer_id == 2000


def test_the_quorums_level_stands_before_the_records_of_its_proposal(tmp_path: Path) -> None:
    log = Log(tmp_path, is_static=True)
    assert log.metadata.kraft_version == 0
    records = [ProducerIdsRecord(next_producer_id=1000)]
    before = [log.propose(500), log.propose(501)]
    # Decisions that wait know their offsets, so nothing may come in front of them.
    assert code_of(log.metadata.propose(records, kraft_version=1)) == "NOT_CONTROLLER"
    log.metadata.settle()
    raising = log.metadata.propose(records, kraft_version=1)
    assert (log.metadata.kraft_version, log.metadata.latest.finalized_level("kraft.version")) == (
        0,
        1,
    )
    # What was raised while this is in flight is not raised again.
    again = log.metadata.propose([], kraft_version=1)
    assert code_of(again) == "in flight"
    log.metadata.settle()
    assert [code_of(each) for each in (*before, raising, again)] == ["committed"] * 4
    assert log.metadata.kraft_version == 1
    log.metadata.close()
    reopened = Log(tmp_path).metadata
    assert (reopened.kraft_version, reopened.image.next_producer_id) == (1, 1000)


def test_proposals_commit_while_a_snapshot_is_written(log: Log) -> None:
    log.propose(1000)
    log.metadata.settle()
    snapshot = log.metadata.snapshot()
    log.world.syncs.run_one()
    assert len(log.world.snapshots.jobs) == 1
    during = [log.propose(number) for number in (2000, 3000)]
    log.metadata.settle()
    assert [code_of(each) for each in during] == ["committed"] * 2
    assert log.metadata.snapshot() is snapshot  # one at a time
    log.world.snapshots.run_one()
    assert snapshot.result() == list_snapshots(log.files, log.directory)[0]
    assert snapshot.result().offset == log.metadata.image.offset + 1 - 2
    # What was appended meanwhile is not in the snapshot, and its segment is not the active one.
    in_flight = log.propose(4000)
    log.metadata.settle()
    assert code_of(in_flight) == "committed"
    log.metadata.close()
    assert Log(log.files.root).metadata.image.next_producer_id == 4000


def test_a_snapshot_gives_way_to_the_loop_while_it_is_encoded(log: Log) -> None:
    records = [
        ConfigRecord(resource_type=2, resource_name=f"topic-{number}", name="a", value="b")
        for number in range(1000)
    ]
    log.metadata.propose(records)
    log.metadata.settle()
    log.metadata.snapshot()
    log.world.syncs.run_one()
    log.world.snapshots.run_one()
    assert 5 <= log.world.gave_way <= 100


def test_a_start_on_a_full_disk_is_refused(log: Log) -> None:
    log.metadata.close()
    with pytest.raises(ApiError, match="KAFKA_STORAGE_ERROR"):
        Log(log.files.root, space_left=False)


def test_a_close_waits_for_a_snapshot_that_is_under_way(log: Log) -> None:
    log.propose(1000)
    log.metadata.settle()
    snapshot = log.metadata.snapshot()
    log.metadata.close()
    assert snapshot.result() == list_snapshots(log.files, log.directory)[0]


def test_a_failed_sync_of_a_snapshot_may_have_been_meant_for_a_proposal(log: Log) -> None:
    """The system tells an error of a file once: who hears of it has to act on it for all."""
    snapshot = log.metadata.snapshot()
    first = log.propose(1000)
    log.files.fail(log.directory, only="sync", error=errno.EIO)
    log.world.syncs.run_one()
    log.files.heal()
    assert code_of(first) == "KAFKA_STORAGE_ERROR"
    assert isinstance(snapshot.error, ApiError)
    log.metadata.settle()
    log.world.syncs.drain()
    assert log.metadata.image.next_producer_id == 0


@pytest.mark.parametrize("snapshots", [False, True])
def test_a_power_cut_at_any_operation_keeps_what_is_committed_and_the_order(
    tmp_path: Path, snapshots: bool
) -> None:
    """Several proposals are in flight at all times; those that are not committed may be there or
    not, but none without those before it."""
    options = OPTIONS._replace(records_max=7) if snapshots else OPTIONS

    def history(root: Path, cut_after: int | None) -> tuple[Log, list[Proposal]]:
        proposals: list[Proposal] = []
        log = Log(root, options)
        log.files.cut_after = cut_after
        try:
            for number in range(1, 13):
                proposals.append(log.propose(number))
                if number % 3 == 0:
                    log.world.syncs.run_one()
                if log.world.snapshots.jobs and number % 2:
                    log.world.snapshots.run_one()
            log.metadata.close()
        except PowerCut:
            pass
        return log, proposals

    began = Log(tmp_path / "began", options).files.operations
    rehearsal, _ = history(tmp_path / "rehearsal", None)
    assert rehearsal.files.operations > began + 10
    cuts = range(began, rehearsal.files.operations)
    for cut_after, seed in itertools.product(cuts, range(3)):
        root = tmp_path / "before"
        log, proposals = history(root, cut_after)
        committed = sum(code_of(each) == "committed" for each in proposals)
        found = log.files.power_cut(tmp_path / "after", seed=cut_after * 3 + seed)
        again = Log(found.root, options)
        there = again.metadata.image.next_producer_id
        # The one whose append was cut off is proposed and not counted here.
        assert committed <= there <= len(proposals) + 1, f"cut after {cut_after}"
        shutil.rmtree(root)


def test_a_start_syncs_what_a_killed_node_left_in_a_segment_that_it_had_rolled(
    tmp_path: Path,
) -> None:
    """Found by the simulator (seeds 9779, 15475, 17275, 18563): only the segment behind it was
    synced from then on, so that a power cut took the record, and all that was built on it."""
    killed = Log(tmp_path / "before")
    killed.metadata.snapshot()
    killed.world.syncs.run_one()
    left = killed.propose(1)
    killed.world.snapshots.run_one()
    assert len(killed.metadata.log.segments) == 2
    assert code_of(left) == "in flight"
    again = Log(killed.files.root, files=killed.files)
    assert again.metadata.image.next_producer_id == 1
    for number in (2, 3):
        later = again.propose(number)
        again.metadata.settle()
        assert code_of(later) == "committed"
    for seed in range(20):
        found = again.files.power_cut(tmp_path / "after", seed)
        after = Log(found.root)
        assert after.metadata.image.next_producer_id == 3, f"power cut {seed}"
        after.metadata.close()
