"""Random histories of producers, retries, timeouts and restarts against one shard."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tests.coordinator.transaction_host import TransactionHost
from tidelog.coordinator.records.transaction import TRANSACTION_STATE, TransactionLogValue
from tidelog.coordinator.transaction import TransactionStatus

S = TransactionStatus
FOLLOWERS = {
    None: {S.EMPTY},
    S.EMPTY: {S.EMPTY, S.ONGOING, S.COMPLETE_COMMIT, S.COMPLETE_ABORT},
    S.ONGOING: {S.ONGOING, S.PREPARE_COMMIT, S.PREPARE_ABORT},
    S.PREPARE_COMMIT: {S.COMPLETE_COMMIT},
    S.PREPARE_ABORT: {S.COMPLETE_ABORT},
    S.COMPLETE_COMMIT: {S.EMPTY, S.ONGOING, S.COMPLETE_COMMIT, S.COMPLETE_ABORT},
    S.COMPLETE_ABORT: {S.EMPTY, S.ONGOING, S.COMPLETE_COMMIT, S.COMPLETE_ABORT},
}

STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("init"), st.booleans(), st.integers(0, 2)),
        st.tuples(st.just("add"), st.integers(0, 3), st.integers(0, 2), st.sampled_from([1, 2])),
        st.tuples(st.just("end"), st.booleans(), st.integers(0, 2), st.sampled_from([4, 5])),
        st.tuples(st.just("markers")),
        st.tuples(st.just("wait"), st.sampled_from([10, 600, 2000])),
        st.tuples(st.just("restart")),
    ),
    max_size=60,
)


@given(STEPS)
def test_decisions_stand_and_a_reload_changes_nothing(steps: list[tuple[object, ...]]) -> None:
    host = TransactionHost()
    for step in steps:
        current = host.shard.transactions.get("pay")
        producer_id = current.producer_id if current is not None else 1000
        epoch = current.producer_epoch if current is not None else 0
        match step:
            case ("init", bool() as names_itself, int() as back):
                if names_itself and epoch >= back:
                    host.init(producer_id, epoch - back, timeout_ms=1000)
                else:
                    host.init(timeout_ms=1000)
            case ("add", int() as partition, int() as back, int() as version):
                host.add(producer_id, max(0, epoch - back), partition, version=version)
            case ("end", bool() as commit, int() as back, int() as version):
                host.end(producer_id, max(0, epoch - back), commit=commit, version=version)
            case ("markers",):
                host.write_markers()
            case ("wait", int() as wait_ms):
                host.tick(host.now_ms + wait_ms)
            case ("restart",):
                before = dict(host.shard.transactions)
                host.restart()
                assert host.shard.transactions == before
        check_log(host)


def check_log(host: TransactionHost) -> None:
    previous: TransactionLogValue | None = None
    for key, encoded in host.log:
        record = TRANSACTION_STATE.decode(key, encoded)
        assert record is not None
        value = record.value
        assert isinstance(value, TransactionLogValue)
        status = S(value.transaction_status)
        assert status in FOLLOWERS[S(previous.transaction_status) if previous else None]
        if previous is not None:
            if value.producer_id == previous.producer_id:
                assert value.producer_epoch >= previous.producer_epoch
            if status is S.PREPARE_COMMIT or status is S.PREPARE_ABORT:
                assert value.transaction_partitions == previous.transaction_partitions
            # An open transaction is never left without a decision, and belongs to one epoch.
            if previous.transaction_status == S.ONGOING and status is S.ONGOING:
                assert value.producer_epoch == previous.producer_epoch
        assert bool(value.transaction_partitions) == (status is S.ONGOING or status.is_prepared)
        previous = value
