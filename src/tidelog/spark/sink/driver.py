"""The driver's side: verify, decide, commit; or abort. The protocol is told in `stream_writer`."""

from collections.abc import Iterable, Sequence
from itertools import count

from pyspark.sql.datasource import WriterCommitMessage

from tidelog.client.cluster import ClusterClient
from tidelog.protocol.apis.describe_transactions import TransactionState
from tidelog.protocol.errors import ErrorCode
from tidelog.spark.errors import SparkError
from tidelog.spark.sink.markers import DecidedPart, Decision, Markers
from tidelog.spark.sink.messages import AlreadyCommitted, Prepared
from tidelog.spark.sink.names import WriterNames, task_number
from tidelog.spark.sink.transaction import OpenTransaction, Transactions

# Of a query whose number of tasks is not known, so many at a time.
_TASKS_ASKED = 100


def commit_batch(
    client: ClusterClient, reports: Sequence[Prepared | AlreadyCommitted], batch_id: int
) -> None:
    """Commit a micro-batch, all of whose tasks with rows have reported.

    SparkError before the decision: nothing is committed. After it: the batch is committed in part,
    and whole when it runs again.
    """
    names = reports[0].names
    prepared = [each for each in reports if isinstance(each, Prepared)]
    skipped = [each for each in reports if isinstance(each, AlreadyCommitted)]
    transactions = [each.transaction for each in prepared]
    verify(client, transactions)
    markers = Markers(client)
    decided = [DecidedPart(each.transaction, each.shape) for each in prepared]
    if skipped or any(each.is_repair for each in prepared):
        decided += _decided_before(client, names, prepared, skipped, batch_id)
    if not prepared:
        return
    markers.record(names, Decision(batch_id, tuple(decided)))
    refused = Transactions(client).end(transactions, commit=True)
    if refused:
        _check_committed(client, markers, refused, batch_id)


def abort_batch(
    client: ClusterClient,
    names: WriterNames,
    messages: Sequence[WriterCommitMessage | None],
    batch_id: int,
) -> None:
    """Roll back what the tasks of a batch have open, also those that told nothing, as they were
    killed; but not what was decided, which stays for the next attempt."""
    prepared = [each.transaction for each in messages if isinstance(each, Prepared)]
    silent = [names.task(number) for number, each in enumerate(messages) if each is None]
    transactions = Transactions(client)
    states = transactions.describe([each.transactional_id for each in prepared] + silent)
    if all(each.is_same(states[each.transactional_id]) for each in prepared):
        found = transactions.still_open({each: states[each] for each in silent})
    else:
        # Another run has taken over: what is open is its own.
        found = []
    _abort(client, names, prepared + found, batch_id)


def abort_query(client: ClusterClient, names: WriterNames, batch_id: int) -> None:
    """The same for a batch of which not even the number of its tasks is known."""
    transactions = Transactions(client)
    found: list[OpenTransaction] = []
    for first in count(0, _TASKS_ASKED):
        states = transactions.describe(
            names.task(number) for number in range(first, first + _TASKS_ASKED)
        )
        # Coordinators know the id of every task that had rows within days.
        if all(state.error_code for state in states.values()):
            break
        found += transactions.still_open(states)
    _abort(client, names, found, batch_id)


def _abort(
    client: ClusterClient, names: WriterNames, found: Sequence[OpenTransaction], batch_id: int
) -> None:
    if not found:
        return
    decision = Markers(client).decision(names)
    if decision is not None and decision.batch_id > batch_id:
        return
    decided = decision.transactions if decision is not None else ()
    Transactions(client).end([each for each in found if each not in decided], commit=False)


def roll_forward(client: ClusterClient, decision: Decision) -> set[str]:
    """Commit what a decision left open; returns the transactional ids whose part is lost."""
    ids = [each.transactional_id for each in decision.transactions]
    transactions = Transactions(client)
    states = transactions.describe_settled(ids)
    still_open = [
        each for each in decision.transactions if each.is_same(states[each.transactional_id])
    ]
    if still_open:
        transactions.end(still_open, commit=True)
        transactions.describe_settled(ids)
    # What the coordinators say of a transaction is gone with the next one; the markers stay.
    committed = Markers(client).committed_batches(ids)
    return {each for each, batch_id in committed.items() if batch_id < decision.batch_id}


def split_error(batch_id: int, lost: Iterable[str], difference: str) -> SparkError:
    """A batch cannot be completed: its rows are not split among the tasks as they were."""
    return SparkError(
        f"batch {batch_id} was committed in part and its rows are now split among the tasks in"
        f" another way: {_some(lost)} is missing, and {difference}. Run the query with the plan"
        " that it had: the same master and number of cores, minPartitions, and settings of"
        " adaptive execution"
    )


def verify(client: ClusterClient, transactions: Sequence[OpenTransaction]) -> None:
    """SparkError unless all are open."""
    states = Transactions(client).describe(each.transactional_id for each in transactions)
    for each in transactions:
        state = states[each.transactional_id]
        if not each.is_same(state):
            raise SparkError(f"{each.transactional_id} cannot be committed: {_say(each, state)}")


def _decided_before(
    client: ClusterClient,
    names: WriterNames,
    prepared: Sequence[Prepared],
    skipped: Sequence[AlreadyCommitted],
    batch_id: int,
) -> list[DecidedPart]:
    """The parts of a batch that was decided before which are not written again.

    SparkError unless the parts that are written again are all that was lost, and of nothing else.
    """
    earlier = Markers(client).decision(names)
    if earlier is None or earlier.batch_id != batch_id:
        if any(each.is_repair for each in prepared):
            was = "" if earlier is None else f": that is batch {earlier.batch_id}"
            raise SparkError(f"batch {batch_id} is not the one that was decided{was}")
        return []
    again = {each.transaction.transactional_id for each in prepared}
    # Not what the tasks found: one that sees its own marker does not look for what others lost, and
    # the task of a lost part may not be there any more.
    lost = roll_forward(client, earlier)
    if again and not lost:
        raise SparkError(f"another run of the query has committed batch {batch_id} meanwhile")
    difference = _difference(earlier, lost, again, skipped) if lost else None
    if difference is not None:
        raise split_error(batch_id, lost, difference)
    return [each for each in earlier.parts if each.transaction.transactional_id not in again]


def _difference(
    earlier: Decision, lost: set[str], again: set[str], skipped: Sequence[AlreadyCommitted]
) -> str | None:
    """In what the parts of a batch are not those that were decided; None if they are the same."""
    shapes = earlier.shapes
    for each in skipped:
        was = shapes.get(each.transactional_id)
        if was != each.shape:
            had = "none" if was is None else f"{was.rows} of {was.size_bytes} bytes"
            return (
                f"{each.transactional_id}, which is committed, has {each.shape.rows} rows of"
                f" {each.shape.size_bytes} bytes, and had {had}"
            )
    absent = shapes.keys() - again - {each.transactional_id for each in skipped}
    if absent:
        return f"{_some(absent)} had rows, and has none"
    strange = again - lost
    return f"{_some(strange)} has rows, and had none" if strange else None


def _some(transactional_ids: Iterable[str]) -> str:
    """Some of many, in the order of their tasks."""
    first, *rest = sorted(transactional_ids, key=task_number)
    return f"{first} and {len(rest)} more" if rest else first


def _check_committed(
    client: ClusterClient,
    markers: Markers,
    refused: dict[OpenTransaction, ErrorCode],
    batch_id: int,
) -> None:
    """A coordinator that was restarted does not know a repeated commit for what it is."""
    ids = [each.transactional_id for each in refused]
    Transactions(client).describe_settled(ids)
    committed = markers.committed_batches(ids)
    lost = [each for each in refused if committed[each.transactional_id] < batch_id]
    if lost:
        raise SparkError(
            f"{len(lost)} of the parts of batch {batch_id} are to be written again, which they are"
            f" when the query is started again: {lost[0].transactional_id} was not committed"
            f" ({refused[lost[0]].name})"
        )


def _say(transaction: OpenTransaction, state: TransactionState) -> str:
    if state.error_code:
        return ErrorCode(state.error_code).name
    if (state.producer_id, state.producer_epoch) != (
        transaction.producer_id,
        transaction.producer_epoch,
    ):
        return (
            "another attempt has taken it over, or it was open for longer than"
            f" kafka.transaction.timeout.ms, {state.transaction_timeout_ms} ms"
        )
    return f"it is {state.transaction_state}"
