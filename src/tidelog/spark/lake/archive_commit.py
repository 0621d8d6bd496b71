"""The commit of an archive's batch: files and coverage in one version of the table."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tidelog.spark.lake.coverage import Advance, advance, covered, transactions_of
from tidelog.spark.lake.data_file import DataFile
from tidelog.spark.lake.errors import LakeError
from tidelog.spark.lake.holes import Hole, hole_transactions, kept_holes
from tidelog.spark.lake.record_counts import RecordCount, count_transactions, kept_count
from tidelog.spark.lake.same_topic import id_transactions, kept_topic_id, other_topics
from tidelog.spark.lake.table import Change, Snapshot, Table, commit_with_retries
from tidelog.spark.offsets import OffsetRange


@dataclass(frozen=True, slots=True)
class WrittenRange:
    """What one task made of one range: its files, or none if there was no record.

    `topic_id` is the id of the topic that it read, if the brokers told one; `holes` are offsets of
    the range that the brokers had lost.
    """

    range: OffsetRange
    files: tuple[DataFile, ...]
    topic_id: bytes | None = None
    holes: tuple[Hole, ...] = ()


def commit_archived(
    table: Table, written: Sequence[WrittenRange], *, gaps_allowed: bool = False
) -> bool:
    """Add what a batch's tasks wrote; False if the lake holds it all already.

    Safe to call again with the same ranges, whatever files they are in now: those of a batch that
    ran before are left to be vacuumed.
    """
    by_topic: dict[str, list[WrittenRange]] = defaultdict(list)
    for each in written:
        by_topic[each.range.topic].append(each)

    def decide(base: Snapshot) -> Change | None:
        adds: list[DataFile] = []
        transactions: dict[str, int] = {}
        for topic, parts in by_topic.items():
            ids = {each.topic_id for each in parts if each.topic_id is not None}
            for topic_id in ids:
                refuse_other_topics(table, base, {topic: topic_id})
            before = covered(topic, base.transaction)
            step = advance(topic, before, (each.range for each in parts), gaps_allowed=gaps_allowed)
            adds += [file for each in parts if each.range in step.fresh for file in each.files]
            made = transactions_of(topic, before, step.after)
            made |= _counts(base, topic, before, step, parts)
            made |= _holes(base, topic, step, parts)
            if made and kept_topic_id(topic, base.transaction) is None:
                for topic_id in ids:
                    made |= id_transactions(topic, topic_id)
            transactions |= made
        if not transactions:
            return None
        return Change("archive", adds=adds, transactions=transactions)

    return commit_with_retries(table, decide)


def _counts(
    base: Snapshot,
    topic: str,
    before: Mapping[int, tuple[int, int]],
    step: Advance,
    parts: Sequence[WrittenRange],
) -> dict[str, int]:
    """The transactions that add what is fresh to the counts of records."""
    records: dict[int, int] = defaultdict(int)
    for each in parts:
        if each.range in step.fresh:
            records[each.range.partition] += sum(file.rows for file in each.files)
    made: dict[str, int] = {}
    for partition, more in records.items():
        start = before[partition][1] if partition in before else step.after[partition][0]
        count = kept_count(topic, partition, base.transaction) or RecordCount(start, 0)
        made |= count_transactions(topic, partition, count.plus(more))
    return made


def _holes(
    base: Snapshot, topic: str, step: Advance, parts: Sequence[WrittenRange]
) -> dict[str, int]:
    """The transactions that keep what was lost before and within fresh ranges."""
    holes: dict[int, list[Hole]] = defaultdict(list)
    for gap in step.gaps:
        holes[gap.partition].append((gap.start, gap.end))
    for each in parts:
        if each.holes and each.range in step.fresh:
            holes[each.range.partition] += each.holes
    made: dict[str, int] = {}
    for partition, new in holes.items():
        before = kept_holes(topic, partition, base.transaction)
        made |= hole_transactions(topic, partition, before, new)
    return made


def refuse_other_topics(table: Table, base: Snapshot, ids: Mapping[str, bytes]) -> None:
    """LakeError if a topic that is to be archived is not the one that the lake holds.

    Their offsets say nothing of each other, so no setting can put them side by side.
    """
    problems = other_topics(base.transaction, ids)
    if problems:
        raise LakeError(
            f"{'; '.join(problems)}. The lake at {table.root} keeps the old one: archive the new "
            "one to another folder"
        )
