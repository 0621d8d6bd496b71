"""The commit of an archive's batch: files and coverage in one version of the table."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from tidelog.spark.lake.coverage import advance, covered, transactions_of
from tidelog.spark.lake.data_file import DataFile
from tidelog.spark.lake.table import Change, Snapshot, Table, commit_with_retries
from tidelog.spark.offsets import OffsetRange


@dataclass(frozen=True, slots=True)
class WrittenRange:
    """What one task made of one range: its files, or none if there was no record."""

    range: OffsetRange
    files: tuple[DataFile, ...]


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
            before = covered(topic, base.transaction)
            step = advance(topic, before, (each.range for each in parts), gaps_allowed=gaps_allowed)
            adds += [file for each in parts if each.range in step.fresh for file in each.files]
            transactions |= transactions_of(topic, before, step.after)
        if not transactions:
            return None
        return Change("archive", adds=adds, transactions=transactions)

    return commit_with_retries(table, decide)
