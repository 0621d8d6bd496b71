"""What outlives a crash: which parts of a micro-batch are committed, and that it was decided.

Both are offsets of consumer groups on a topic without records, because an offset can be committed
inside of a transaction, and costs nothing to read:

* a task's *marker* is committed in the transaction of its rows: the group named as its
  transactional id has the offset N + 1 exactly if the rows of batch N are in the topic;
* the *decision* is committed by the driver when every part of batch N is prepared: the offset N + 1
  of the query's group, with the transactions that are to be committed in its metadata.

A group of its own for each task, since Kafka takes offsets only of partitions that exist.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from tidelog.protocol.apis.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from tidelog.protocol.apis.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
)
from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.topic_partition import TopicPartition
from tidelog.spark.errors import SparkError
from tidelog.spark.sink.brokers import GROUP, Brokers, Patience
from tidelog.spark.sink.transaction import OpenTransaction

MARKER_PLACE = TopicPartition("_tidelog_spark_commits", 0)

# The newest versions that name topics by name.
_OFFSET_VERSION_MAX = 9
_NO_OFFSET = -1
# Brokers take 4096 bytes of metadata unless told otherwise.
_PIECE_CHARACTERS = 4000
_FORMAT = "1"


@dataclass(frozen=True, slots=True)
class Decision:
    """Batch `batch_id` is to be committed: these transactions, of `task_count` tasks."""

    batch_id: int
    task_count: int
    transactions: tuple[OpenTransaction, ...]


@dataclass(frozen=True, slots=True)
class _Offset:
    offset: int
    metadata: str


class Markers:
    """The groups of the sink."""

    def __init__(self, brokers: Brokers) -> None:
        self._brokers = brokers

    def committed_batches(self, task_groups: Iterable[str]) -> dict[str, int]:
        """The newest batch whose part each task has committed; -1 for none."""
        return {group: read.offset - 1 for group, read in self._read(task_groups).items()}

    def state(self, task_group: str, decision_group: str) -> tuple[int, Decision | None]:
        """A task's newest committed batch (-1: none), and the newest decision of its query."""
        read = self._read([task_group, decision_group])
        return max(read[task_group].offset, 0) - 1, self._decision(
            decision_group, read[decision_group]
        )

    def decision(self, decision_group: str) -> Decision | None:
        """The newest decision of a query."""
        return self._decision(decision_group, self._read([decision_group])[decision_group])

    def record(self, decision_group: str, decision: Decision) -> None:
        """Make a decision durable. Only one who has verified its transactions may do so."""
        text = ",".join(
            f"{_id_suffix(each.transactional_id)}:{each.producer_id}:{each.producer_epoch}"
            for each in decision.transactions
        )
        pieces = [
            text[at : at + _PIECE_CHARACTERS] for at in range(0, len(text), _PIECE_CHARACTERS)
        ]
        is_v2 = int(decision.transactions[0].is_v2)
        head = f"{_FORMAT};{is_v2};{decision.task_count};{len(pieces)};"
        first, *rest = pieces
        offset = decision.batch_id + 1
        # The rest comes first: whoever finds the head finds all of it.
        if rest:
            self._write(
                {
                    _piece_group(decision_group, number): _Offset(offset, piece)
                    for number, piece in enumerate(rest, 1)
                }
            )
        self._write({decision_group: _Offset(offset, head + first)})

    def _decision(self, group: str, head: _Offset) -> Decision | None:
        if head.offset <= 0:
            return None
        batch_id = head.offset - 1
        format_number, *fields = head.metadata.split(";")
        if format_number != _FORMAT or len(fields) != 4:
            raise SparkError(
                f"the group {group} has offsets that the sink did not write:"
                " set transactionalIdPrefix to another one"
            )
        is_v2, task_count, piece_count, text = fields
        if int(piece_count) > 1:
            groups = [_piece_group(group, number) for number in range(1, int(piece_count))]
            pieces = self._read(groups)
            if any(pieces[each].offset != head.offset for each in groups):
                raise SparkError(f"the decision on batch {batch_id} in {group} is incomplete")
            text += "".join(pieces[each].metadata for each in groups)
        transactions = []
        for each in text.split(","):
            suffix, producer_id, producer_epoch = each.split(":")
            transactions.append(
                OpenTransaction(
                    f"{group}-{suffix}", int(producer_id), int(producer_epoch), is_v2 == "1"
                )
            )
        return Decision(batch_id, int(task_count), tuple(transactions))

    def _read(self, groups: Iterable[str]) -> dict[str, _Offset]:
        topic, partition = MARKER_PLACE
        requests = {
            group: OffsetFetchRequest(
                group_id=group,
                topics=[OffsetFetchRequestTopic(name=topic, partition_indexes=[partition])],
                groups=[
                    OffsetFetchRequestGroup(
                        group_id=group,
                        topics=[
                            OffsetFetchRequestTopics(name=topic, partition_indexes=[partition])
                        ],
                    )
                ],
            )
            for group in groups
        }
        answers = self._brokers.ask_coordinators(
            GROUP,
            requests,
            OffsetFetchResponse,
            lambda response: _fetched(response)[0],
            version_max=_OFFSET_VERSION_MAX,
        )
        read = {}
        for group, answer in answers.items():
            code, offset = _fetched(answer)
            if code:
                raise SparkError(f"the offsets of {group} cannot be read: {ErrorCode(code).name}")
            read[group] = offset
        return read

    def _write(self, offsets: Mapping[str, _Offset]) -> None:
        waiting = dict(offsets)
        patience = Patience(self._brokers.timeout_s)
        while waiting:
            answers = self._brokers.ask_coordinators(
                GROUP,
                {group: _commit_request(group, each) for group, each in waiting.items()},
                OffsetCommitResponse,
                _committed_code,
                version_max=_OFFSET_VERSION_MAX,
            )
            for group, answer in answers.items():
                code = ErrorCode(_committed_code(answer))
                if code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                    continue
                if code:
                    raise SparkError(f"the decision in {group} cannot be recorded: {code.name}")
                del waiting[group]
            if waiting:
                self._brokers.create_compacted_topic(MARKER_PLACE.topic)
                patience.wait("the decision", f"{MARKER_PLACE.topic} is unknown")


def _fetched(response: OffsetFetchResponse) -> tuple[int, _Offset]:
    """The error code and the one offset of an answer of any version."""
    if response.groups:
        group = response.groups[0]
        if group.error_code:
            return group.error_code, _Offset(_NO_OFFSET, "")
        row = group.topics[0].partitions[0]
        return row.error_code, _Offset(row.committed_offset, row.metadata or "")
    if response.error_code:
        return response.error_code, _Offset(_NO_OFFSET, "")
    old_row = response.topics[0].partitions[0]
    return old_row.error_code, _Offset(old_row.committed_offset, old_row.metadata or "")


def _commit_request(group: str, offset: _Offset) -> OffsetCommitRequest:
    return OffsetCommitRequest(
        group_id=group,
        topics=[
            OffsetCommitRequestTopic(
                name=MARKER_PLACE.topic,
                partitions=[
                    OffsetCommitRequestPartition(
                        partition_index=MARKER_PLACE.partition,
                        committed_offset=offset.offset,
                        committed_metadata=offset.metadata,
                    )
                ],
            )
        ],
    )


def _committed_code(response: OffsetCommitResponse) -> int:
    return response.topics[0].partitions[0].error_code


def _id_suffix(transactional_id: str) -> str:
    return transactional_id.rpartition("-")[2]


def _piece_group(decision_group: str, number: int) -> str:
    return f"{decision_group}.{number}"
