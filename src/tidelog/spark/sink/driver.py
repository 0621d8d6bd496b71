"""The driver's side: verify, decide, commit; or abort. The protocol is told in `stream_writer`."""

from collections.abc import Sequence

from tidelog.protocol.apis.describe_transactions import TransactionState
from tidelog.protocol.errors import ErrorCode
from tidelog.spark.errors import SparkError
from tidelog.spark.sink.brokers import Brokers
from tidelog.spark.sink.markers import Decision, Markers
from tidelog.spark.sink.messages import Prepared
from tidelog.spark.sink.transaction import OpenTransaction, Transactions


def commit_batch(
    brokers: Brokers, prepared: Sequence[Prepared], batch_id: int, task_count: int
) -> None:
    """Commit a micro-batch of which at least one part is prepared.

    SparkError before the decision: nothing is committed. After it: the batch is committed in part,
    and whole when it runs again.
    """
    group = prepared[0].decision_group
    assert group is not None
    transactions = [each.transaction for each in prepared]
    verify(brokers, transactions)
    markers = Markers(brokers)
    decided = list(transactions)
    if any(each.is_repair for each in prepared):
        decided += _committed_before(markers, group, transactions, batch_id, task_count)
    markers.record(group, Decision(batch_id, task_count, tuple(decided)))
    refused = Transactions(brokers).end(transactions, commit=True)
    if refused:
        _check_committed(brokers, markers, refused, batch_id)


def abort_batch(brokers: Brokers, prepared: Sequence[Prepared], batch_id: int) -> None:
    """Roll back what is prepared, unless it was decided: then it stays for the next attempt."""
    group = prepared[0].decision_group
    assert group is not None
    decision = Markers(brokers).decision(group)
    if decision is not None and decision.batch_id > batch_id:
        return
    decided = decision.transactions if decision is not None else ()
    transactions = [each.transaction for each in prepared if each.transaction not in decided]
    Transactions(brokers).end(transactions, commit=False)


def roll_forward(brokers: Brokers, decision: Decision) -> set[str]:
    """Commit what a decision left open; returns the transactional ids whose part is lost."""
    ids = [each.transactional_id for each in decision.transactions]
    transactions = Transactions(brokers)
    states = transactions.describe_settled(ids)
    still_open = [
        each for each in decision.transactions if each.is_same(states[each.transactional_id])
    ]
    if still_open:
        transactions.end(still_open, commit=True)
        transactions.describe_settled(ids)
    # What the coordinators say of a transaction is gone with the next one; the markers stay.
    committed = Markers(brokers).committed_batches(ids)
    return {each for each, batch_id in committed.items() if batch_id < decision.batch_id}


def verify(brokers: Brokers, transactions: Sequence[OpenTransaction]) -> None:
    """SparkError unless all are open."""
    states = Transactions(brokers).describe(each.transactional_id for each in transactions)
    for each in transactions:
        state = states[each.transactional_id]
        if not each.is_same(state):
            raise SparkError(f"{each.transactional_id} cannot be committed: {_say(each, state)}")


def _committed_before(
    markers: Markers,
    group: str,
    transactions: Sequence[OpenTransaction],
    batch_id: int,
    task_count: int,
) -> list[OpenTransaction]:
    """The parts of a batch that was decided before which are not written again."""
    earlier = markers.decision(group)
    if earlier is None or earlier.batch_id != batch_id or earlier.task_count != task_count:
        was = "" if earlier is None else f" (batch {earlier.batch_id}, {earlier.task_count} tasks)"
        raise SparkError(
            f"batch {batch_id} with {task_count} tasks is not the one that was decided{was}:"
            " run the query with the plan that it had"
        )
    again = {each.transactional_id for each in transactions}
    return [each for each in earlier.transactions if each.transactional_id not in again]


def _check_committed(
    brokers: Brokers,
    markers: Markers,
    refused: dict[OpenTransaction, ErrorCode],
    batch_id: int,
) -> None:
    """A coordinator that was restarted does not know a repeated commit for what it is."""
    ids = [each.transactional_id for each in refused]
    Transactions(brokers).describe_settled(ids)
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
