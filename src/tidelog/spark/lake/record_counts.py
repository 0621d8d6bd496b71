"""How many records were archived of each partition, kept where its coverage is.

A gap within the coverage may be as it should be: transactions and compaction leave some. So the
coverage does not tell whether records are missing from the files, and the number of them does. It
is a sum over all commits of the archive, which no compaction changes. An archive that is older than
these sums has them from where it went on.
"""

from dataclasses import dataclass

from tidelog.spark.lake.coverage import VersionOf


@dataclass(frozen=True, slots=True)
class RecordCount:
    """So many records were archived from offset `start` to the end of the coverage."""

    start: int
    records: int

    def plus(self, records: int) -> "RecordCount":
        return RecordCount(self.start, self.records + records)


def kept_count(topic: str, partition: int, version_of: VersionOf) -> RecordCount | None:
    """What the log of a table holds for a partition."""
    start = version_of(_id(topic, partition, "counted-from"))
    records = version_of(_id(topic, partition, "records"))
    return None if start is None or records is None else RecordCount(start, records)


def count_transactions(topic: str, partition: int, count: RecordCount) -> dict[str, int]:
    """The application transactions that keep a count."""
    return {
        _id(topic, partition, "counted-from"): count.start,
        _id(topic, partition, "records"): count.records,
    }


def _id(topic: str, partition: int, name: str) -> str:
    return f"tidelog/{topic}/{partition}/{name}"
