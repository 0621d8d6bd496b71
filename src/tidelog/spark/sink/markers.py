"""What outlives a crash: which parts of a micro-batch are committed, and that it was decided.

Both are offsets of consumer groups on a topic without records, because an offset can be committed
inside of a transaction, and costs nothing to read:

* a task's *marker* is committed in the transaction of its rows: the group named as its
  transactional id has the offset N + 1 exactly if the rows of batch N are in the topic;
* the *decision* is committed by the driver when every part of batch N is prepared: the offset N + 1
  of the query's group, with the transactions that are to be committed and the shapes of their rows
  in its metadata. What does not fit there is in more groups, of which there are two sets that take
  turns.

A group of its own for each task, since Kafka takes offsets only of partitions that exist.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from tidelog.client.cluster import COORDINATOR_GROUP, ClusterClient, Retries, Topics
from tidelog.client.errors import BrokerError
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
from tidelog.spark.sink.names import WriterNames, task_number
from tidelog.spark.sink.shape import Shape
from tidelog.spark.sink.transaction import OpenTransaction

MARKER_PLACE = TopicPartition("_tidelog_spark_commits", 0)

# The newest versions that name topics by name.
_OFFSET_VERSION_MAX = 9
_NO_OFFSET = -1
# Brokers take 4096 bytes of metadata unless told otherwise.
_PIECE_CHARACTERS = 4000
_PIECE_SETS = ("a", "b")
_FORMAT = "1"


@dataclass(frozen=True, slots=True)
class DecidedPart:
    """A part that is to be committed, and what its rows were like."""

    transaction: OpenTransaction
    shape: Shape


@dataclass(frozen=True, slots=True)
class Decision:
    """Batch `batch_id` is to be committed: these parts."""

    batch_id: int
    parts: tuple[DecidedPart, ...]

    @property
    def transactions(self) -> list[OpenTransaction]:
        """Those of the parts."""
        return [each.transaction for each in self.parts]

    @property
    def shapes(self) -> dict[str, Shape]:
        """The parts' shapes by their transactional ids."""
        return {each.transaction.transactional_id: each.shape for each in self.parts}


@dataclass(frozen=True, slots=True)
class DecisionHead:
    """What the decision's own group has of it: of a long one, not all transactions."""

    batch_id: int
    is_v2: bool
    piece_set: str
    piece_count: int
    text: str


@dataclass(frozen=True, slots=True)
class _Offset:
    offset: int
    metadata: str


class Markers:
    """The groups of the sink."""

    def __init__(self, client: ClusterClient) -> None:
        self._client = client

    def committed_batches(self, task_groups: Iterable[str]) -> dict[str, int]:
        """The newest batch whose part each task has committed; -1 for none."""
        return {group: read.offset - 1 for group, read in self._read(task_groups).items()}

    def state(self, names: WriterNames, task_group: str) -> tuple[int, DecisionHead | None]:
        """A task's newest committed batch (-1: none), and the newest decision of its query."""
        read = self._read([task_group, names.decision])
        return max(read[task_group].offset, 0) - 1, _parse_head(names, read[names.decision])

    def decision(self, names: WriterNames) -> Decision | None:
        """The newest decision of a query."""
        head = self._head(names)
        return None if head is None else self.whole(names, head)

    def whole(self, names: WriterNames, head: DecisionHead) -> Decision:
        """The decision of a head, with what is in other groups."""
        text = head.text
        if head.piece_count > 1:
            groups = [names.piece(head.piece_set, number) for number in range(1, head.piece_count)]
            pieces = self._read(groups)
            if any(pieces[each].offset != head.batch_id + 1 for each in groups):
                raise SparkError(
                    f"the decision on batch {head.batch_id} in {names.decision} is incomplete"
                )
            text += "".join(pieces[each].metadata for each in groups)
        parts = tuple(_parse_part(names, each, head.is_v2) for each in text.split(","))
        return Decision(head.batch_id, parts)

    def record(self, names: WriterNames, decision: Decision) -> None:
        """Make a decision durable. Only one who has verified its transactions may do so."""
        text = ",".join(_part_text(each) for each in decision.parts)
        first, *rest = [
            text[at : at + _PIECE_CHARACTERS] for at in range(0, len(text), _PIECE_CHARACTERS)
        ]
        offset = decision.batch_id + 1
        piece_set = _PIECE_SETS[0]
        # The rest comes first, and not in the place of what the head from before refers to: whoever
        # finds a head finds all of its decision, also when this is broken off in between.
        if rest:
            earlier = self._head(names)
            if earlier is not None and earlier.piece_set == piece_set:
                piece_set = _PIECE_SETS[1]
            self._write(
                {
                    names.piece(piece_set, number): _Offset(offset, piece)
                    for number, piece in enumerate(rest, 1)
                }
            )
        is_v2 = int(decision.parts[0].transaction.is_v2)
        head = f"{_FORMAT};{is_v2};{piece_set};{1 + len(rest)};"
        self._write({names.decision: _Offset(offset, head + first)})

    def _head(self, names: WriterNames) -> DecisionHead | None:
        return _parse_head(names, self._read([names.decision])[names.decision])

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
        responses = self._client.ask_coordinators(
            COORDINATOR_GROUP,
            requests,
            OffsetFetchResponse,
            lambda response: _fetched(response)[0],
            version_max=_OFFSET_VERSION_MAX,
        )
        read = {}
        for group, response in responses.items():
            code, offset = _fetched(response)
            if code:
                raise SparkError(f"the offsets of {group} cannot be read: {ErrorCode(code).name}")
            read[group] = offset
        return read

    def _write(self, offsets: Mapping[str, _Offset]) -> None:
        waiting = dict(offsets)
        retries = Retries(self._client.timeout_s)
        while waiting:
            responses = self._client.ask_coordinators(
                COORDINATOR_GROUP,
                {group: _commit_request(group, each) for group, each in waiting.items()},
                OffsetCommitResponse,
                _committed_code,
                version_max=_OFFSET_VERSION_MAX,
            )
            for group, response in responses.items():
                code = ErrorCode(_committed_code(response))
                if code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                    continue
                if code:
                    raise SparkError(f"the decision in {group} cannot be recorded: {code.name}")
                del waiting[group]
            if waiting:
                create_marker_topic(self._client)
                retries.wait("the decision", f"{MARKER_PLACE.topic} is unknown")


def create_marker_topic(client: ClusterClient) -> None:
    """Create the topic of the offsets if it is not there."""
    try:
        Topics(client).create(
            [MARKER_PLACE.topic], partitions=1, settings={"cleanup.policy": "compact"}
        )
    except BrokerError as error:
        if error.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
            raise


def _parse_head(names: WriterNames, read: _Offset) -> DecisionHead | None:
    if read.offset <= 0:
        return None
    format_number, *fields = read.metadata.split(";")
    if format_number != _FORMAT or len(fields) != 4:
        raise SparkError(
            f"the group {names.decision} has offsets that the sink did not write:"
            " set transactionalIdPrefix to another one"
        )
    is_v2, piece_set, piece_count, text = fields
    return DecisionHead(read.offset - 1, is_v2 == "1", piece_set, int(piece_count), text)


def _part_text(part: DecidedPart) -> str:
    transaction, shape = part.transaction, part.shape
    numbers = (
        task_number(transaction.transactional_id),
        transaction.producer_id,
        transaction.producer_epoch,
        shape.rows,
        shape.size_bytes,
    )
    return ":".join(map(str, numbers))


def _parse_part(names: WriterNames, text: str, is_v2: bool) -> DecidedPart:
    number, producer_id, producer_epoch, rows, size_bytes = map(int, text.split(":"))
    transaction = OpenTransaction(names.task(number), producer_id, producer_epoch, is_v2)
    return DecidedPart(transaction, Shape(rows, size_bytes))


def _fetched(response: OffsetFetchResponse) -> tuple[int, _Offset]:
    """The error code and the one offset of a response of any version."""
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
