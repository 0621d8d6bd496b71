"""What the driver asks an archive that is read together with a topic (option `lake`)."""

from collections.abc import Iterable, Mapping

from tidelog.protocol.topic_partition import TopicPartition
from tidelog.spark.errors import OptionError
from tidelog.spark.offsets import OffsetRange, Offsets

Coverage = dict[TopicPartition, tuple[int, int]]
"""The offsets `[start, end)` of each partition that an archive holds without a gap."""


class LakeLookup:
    """An archive, looked at anew for each question: it grows while a query runs.

    Without a path it is an archive of nothing.
    """

    def __init__(self, path: str | None) -> None:
        self.path = path

    def coverage(
        self, names: Iterable[TopicPartition], topic_ids: Mapping[str, bytes] | None = None
    ) -> Coverage:
        """What the archive holds; OptionError if it is of other topics than those with the ids."""
        if self.path is None:
            return {}
        from tidelog.spark.lake.reading import LakeTable
        from tidelog.spark.lake.same_topic import other_topics

        table = LakeTable(self.path)
        wanted = set(names)
        topics = {each.topic for each in wanted}
        asked = {topic: each for topic, each in (topic_ids or {}).items() if topic in topics}
        problems = other_topics(table.snapshot.transaction, asked)
        if problems:
            raise OptionError(
                f"option lake={self.path}: {'; '.join(problems)}. Leave the option out, or give "
                "the lake that this topic is archived to"
            )
        return {
            name: covered
            for topic in topics
            for partition, covered in table.coverage(topic).items()
            if (name := TopicPartition(topic, partition)) in wanted
        }

    def first_not_older(self, timestamps_ms: Mapping[TopicPartition, int]) -> Offsets:
        """The first offset in the archive whose record is not older, where there is one."""
        if self.path is None:
            return {}
        from tidelog.spark.lake.reading import LakeTable, TimeRange

        table = LakeTable(self.path)
        found: Offsets = {}
        for name, timestamp_ms in timestamps_ms.items():
            covered = table.coverage(name.topic).get(name.partition)
            if covered is None:
                continue
            wanted = OffsetRange(name.topic, name.partition, *covered)
            times = TimeRange(start_us=timestamp_ms * 1000)
            batches = table.read_range(wanted, include_headers=False, times=times)
            first = next((each for each in batches if each.num_rows), None)
            if first is not None:
                found[name] = first.column("offset")[0].as_py()
        return found
