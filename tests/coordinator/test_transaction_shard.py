"""Scenarios of the transaction coordinator, each a transcript of calls and answers."""

import re

import pytest

from tests.coordinator.transaction_host import ID, TransactionHost
from tidelog.protocol.errors import ApiError, ErrorCode
from tidelog.protocol.topic_partition import TopicPartition


@pytest.fixture
def host() -> TransactionHost:
    return TransactionHost(timeout_max_ms=900_000)


def test_the_life_of_a_transaction_in_the_old_flow(host: TransactionHost) -> None:
    assert host.init() == "NONE 1000/0"
    assert host.state == "Empty 1000/0"
    assert host.add(1000, 0, 0) == "NONE"
    assert host.add(1000, 0, 1) == "NONE"
    assert host.state == "Ongoing 1000/0 [0, 1]"
    assert host.end(1000, 0) == "NONE"
    assert host.state == "PrepareCommit 1000/0 [0, 1]"
    [markers] = host.write_markers()
    assert (markers.producer_epoch, markers.committed) == (0, True)
    assert markers.partitions == {TopicPartition("t", 0), TopicPartition("t", 1)}
    assert host.state == "CompleteCommit 1000/0"
    # The next transaction goes on with the same epoch.
    assert host.add(1000, 0, 2) == "NONE"
    assert host.end(1000, 0, commit=False) == "NONE"
    assert host.state == "PrepareAbort 1000/0 [2]"
    host.write_markers()
    assert host.state == "CompleteAbort 1000/0"


def test_every_end_raises_the_epoch_in_transactions_v2(host: TransactionHost) -> None:
    host.init()
    assert host.add(1000, 0, 0, version=2) == "NONE"
    assert host.end(1000, 0, version=5) == "NONE 1000/1"
    assert host.state == "PrepareCommit 1000/1 [0]"
    [markers] = host.write_markers()
    assert (markers.producer_epoch, markers.transaction_version) == (1, 2)
    assert host.state == "CompleteCommit 1000/1"
    assert host.add(1000, 0, 0, version=2) == "PRODUCER_FENCED"
    assert host.add(1000, 1, 0, version=2) == "NONE"
    assert host.end(1000, 1, commit=False, version=5) == "NONE 1000/2"


def test_a_retry_of_the_end_at_one_epoch_less_gets_the_same_answer(host: TransactionHost) -> None:
    host.init()
    host.add(1000, 0, 0, version=2)
    assert host.end(1000, 0, version=5) == "NONE 1000/1"
    assert host.end(1000, 0, version=5) == "CONCURRENT_TRANSACTIONS"
    host.write_markers()
    assert host.end(1000, 0, version=5) == "NONE 1000/1"
    assert host.end(1000, 0, commit=False, version=5) == "INVALID_TXN_STATE"
    host.restart()
    assert host.end(1000, 0, version=5) == "NONE 1000/1"
    # Once the next transaction has begun it is no retry any more.
    host.add(1000, 1, 0, version=2)
    assert host.end(1000, 0, version=5) == "PRODUCER_FENCED"


def test_an_end_while_the_previous_one_completes_is_concurrent(host: TransactionHost) -> None:
    """In every version: the producer has to wait for the markers of the last transaction."""
    host.init()
    host.add(1000, 0, 0)
    host.end(1000, 0)
    assert host.end(1000, 0) == "CONCURRENT_TRANSACTIONS"
    assert host.end(1000, 0, commit=False) == "CONCURRENT_TRANSACTIONS"
    assert host.end(1000, 1) == "PRODUCER_FENCED"
    assert host.end(1000, 1, version=5) == "CONCURRENT_TRANSACTIONS"
    assert host.end(4711, 0, version=5) == "CONCURRENT_TRANSACTIONS"
    assert host.add(1000, 0, 1) == "CONCURRENT_TRANSACTIONS"
    assert host.init() == "CONCURRENT_TRANSACTIONS"
    host.write_markers()
    host.add(1000, 0, 0, version=2)
    assert host.end(1000, 0, version=5) == "NONE 1000/1"
    assert host.end(1000, 1, version=5) == "CONCURRENT_TRANSACTIONS"
    assert host.add(1000, 1, 0, version=2) == "CONCURRENT_TRANSACTIONS"


def test_the_end_of_an_empty_transaction_in_the_old_flow(host: TransactionHost) -> None:
    host.init()
    assert host.end(1000, 0) == "INVALID_TXN_STATE"
    assert host.end(1000, 0, commit=False) == "INVALID_TXN_STATE"
    assert host.end(1000, 1) == "PRODUCER_FENCED"
    assert host.state == "Empty 1000/0"


def test_an_empty_transaction_is_aborted_but_not_committed_in_transactions_v2(
    host: TransactionHost,
) -> None:
    host.init()
    assert host.end(1000, 0, version=5) == "INVALID_TXN_STATE"
    assert host.end(1000, 0, commit=False, version=5) == "NONE 1000/1"
    assert host.state == "CompleteAbort 1000/1"
    assert host.end(1000, 0, commit=False, version=5) == "NONE 1000/1"  # a retry
    assert host.end(1000, 1, version=5) == "INVALID_TXN_STATE"
    assert host.end(1000, 1, commit=False, version=5) == "NONE 1000/2"
    assert host.write_markers() == []


# What Kafka answers to an end by the state of the transaction: (state, commit, epochs behind).
FENCED, INVALID = "PRODUCER_FENCED", "INVALID_TXN_STATE"
ENDS_V2 = {
    ("Empty", False, 1): FENCED,
    ("Empty", False, 0): "NONE 1000/2",
    ("Empty", True, 1): FENCED,
    ("Empty", True, 0): INVALID,
    ("CompleteAbort", False, 1): "NONE 1000/1",
    ("CompleteAbort", False, 0): "NONE 1000/2",
    ("CompleteAbort", True, 1): FENCED,  # the coordinator's abort was first: see KAFKA-20785
    ("CompleteAbort", True, 0): INVALID,
    ("CompleteCommit", False, 1): INVALID,
    ("CompleteCommit", False, 0): "NONE 1000/2",
    ("CompleteCommit", True, 1): "NONE 1000/1",
    ("CompleteCommit", True, 0): INVALID,
    ("Ongoing", False, 1): FENCED,
    ("Ongoing", False, 0): "NONE 1000/2",
    ("Ongoing", True, 1): FENCED,
    ("Ongoing", True, 0): "NONE 1000/2",
}
ENDS_V1 = {
    ("Empty", False): INVALID,
    ("Empty", True): INVALID,
    ("CompleteAbort", False): "NONE",
    ("CompleteAbort", True): INVALID,
    ("CompleteCommit", False): INVALID,
    ("CompleteCommit", True): "NONE",
    ("Ongoing", False): "NONE",
    ("Ongoing", True): "NONE",
}


def _bring_to(host: TransactionHost, state: str) -> None:
    """To that state, at epoch 1."""
    host.init()
    if state in ("Empty", "Ongoing"):
        host.init()
    if state == "Ongoing":
        host.add(1000, 1, 0, version=2)
    if state.startswith("Complete"):
        host.add(1000, 0, 0, version=2)
        host.end(1000, 0, commit=state == "CompleteCommit", version=5)
        host.write_markers()
    assert host.state.startswith(f"{state} 1000/1")


@pytest.mark.parametrize(("state", "commit", "behind"), ENDS_V2)
def test_how_a_transaction_ends_in_transactions_v2(
    host: TransactionHost, state: str, commit: bool, behind: int
) -> None:
    _bring_to(host, state)
    expected = ENDS_V2[state, commit, behind]
    assert host.end(1000, 1 - behind, commit=commit, version=5) == expected
    if behind:
        assert host.state.startswith(f"{state} 1000/1")
    assert host.end(1000, 7, commit=commit, version=5) in (FENCED, "CONCURRENT_TRANSACTIONS")
    if expected == INVALID:
        assert host.end(4711, 1, version=5) == "INVALID_PRODUCER_ID_MAPPING"


@pytest.mark.parametrize(("state", "commit"), ENDS_V1)
def test_how_a_transaction_ends_in_the_old_flow(
    host: TransactionHost, state: str, commit: bool
) -> None:
    _bring_to(host, state)
    assert host.end(1000, 0, commit=commit) == FENCED
    assert host.end(1000, 2, commit=commit) == FENCED
    assert host.end(4711, 1, commit=commit) == "INVALID_PRODUCER_ID_MAPPING"
    assert host.end(1000, 1, commit=commit) == ENDS_V1[state, commit]


def test_a_late_end_hits_the_next_transaction_only_in_the_old_flow(host: TransactionHost) -> None:
    host.init()
    host.add(1000, 0, 0)
    host.end(1000, 0)
    host.write_markers()
    host.add(1000, 0, 1)
    assert host.end(1000, 0) == "NONE"  # the late copy of the first one: nothing tells them apart
    assert host.state == "PrepareCommit 1000/0 [1]"
    host.write_markers()

    host.add(1000, 0, 0, version=2)
    host.end(1000, 0, version=5)
    host.write_markers()
    host.add(1000, 1, 1, version=2)
    assert host.end(1000, 0, version=5) == "PRODUCER_FENCED"
    assert host.state == "Ongoing 1000/1 [1]"


def test_a_new_incarnation_fences_the_old_one_and_rolls_its_transaction_back(
    host: TransactionHost,
) -> None:
    host.init()
    host.add(1000, 0, 0)
    assert host.init() == "CONCURRENT_TRANSACTIONS"
    assert host.state == "PrepareAbort 1000/1 [0]"
    assert host.end(1000, 0) == "PRODUCER_FENCED"
    assert host.init() == "CONCURRENT_TRANSACTIONS"
    [markers] = host.write_markers()
    assert (markers.producer_epoch, markers.committed) == (1, False)
    assert host.init() == "NONE 1000/2"
    assert host.add(1000, 0, 0) == "PRODUCER_FENCED"
    assert host.add(1000, 2, 0) == "NONE"


def test_a_commit_that_races_the_coordinators_abort_is_fenced(host: TransactionHost) -> None:
    host.init(timeout_ms=1000)
    host.add(1000, 0, 0, version=2)
    host.tick(1000)
    assert host.state == "PrepareAbort 1000/1 [0]"
    assert host.end(1000, 0, version=5) == "CONCURRENT_TRANSACTIONS"
    [markers] = host.write_markers()
    assert (markers.producer_epoch, markers.transaction_version) == (1, 2)
    assert host.state == "CompleteAbort 1000/1"
    assert host.end(1000, 0, version=5) == "PRODUCER_FENCED"
    assert host.end(1000, 0, version=4) == "PRODUCER_FENCED"
    host.restart()
    assert host.end(1000, 0, version=5) == "PRODUCER_FENCED"


def test_an_abort_that_races_the_coordinators_abort_goes_on_with_the_next_epoch(
    host: TransactionHost,
) -> None:
    host.init(timeout_ms=1000)
    host.add(1000, 0, 0, version=2)
    host.tick(1000)
    host.write_markers()
    assert host.end(1000, 0, commit=False, version=4) == "PRODUCER_FENCED"
    assert host.end(1000, 0, commit=False, version=5) == "NONE 1000/1"
    assert host.add(1000, 1, 0, version=2) == "NONE"


def test_the_coordinators_abort_before_transactions_v2_fences_the_producer() -> None:
    host = TransactionHost(transaction_version=1)
    host.init(timeout_ms=1000)
    host.add(1000, 0, 0)
    host.tick(1000)
    [markers] = host.write_markers()
    assert (markers.producer_epoch, markers.transaction_version) == (1, 1)
    assert host.end(1000, 0, commit=False) == "PRODUCER_FENCED"


def test_a_timeout_rolls_back_and_only_then(host: TransactionHost) -> None:
    host.now_ms = 5000
    host.init(timeout_ms=1000)
    assert host.add(1000, 0, 0) == "NONE"
    host.now_ms = 5500
    host.add(1000, 0, 1)  # the clock of a transaction starts with its first partition
    host.tick(5999)
    assert host.state == "Ongoing 1000/0 [0, 1]"
    host.tick(6000)
    assert host.state == "PrepareAbort 1000/1 [0, 1]"
    assert host.end(1000, 0) == "PRODUCER_FENCED"


def test_a_timeout_whose_record_is_refused_is_tried_again(host: TransactionHost) -> None:
    host.init(timeout_ms=1000)
    host.add(1000, 0, 0)
    host.refuses_appends = True
    host.tick(1000)
    assert host.state == "Ongoing 1000/0 [0]"
    host.refuses_appends = False
    host.tick(2000)
    assert host.state == "PrepareAbort 1000/1 [0]"


@pytest.mark.parametrize("timeout_ms", [0, -1, 900_001])
def test_timeouts_above_the_maximum_are_rejected(host: TransactionHost, timeout_ms: int) -> None:
    assert host.init(timeout_ms=timeout_ms) == "INVALID_TRANSACTION_TIMEOUT"
    assert host.init(timeout_ms=900_000) == "NONE 1000/0"


def test_a_producer_that_names_itself_raises_its_own_epoch_once(host: TransactionHost) -> None:
    host.init()
    assert host.init(1000, 0) == "NONE 1000/1"
    assert host.init(1000, 0) == "NONE 1000/1"  # the answer got lost
    assert host.init(1000, 1) == "NONE 1000/2"
    assert host.init(1000, 0) == "PRODUCER_FENCED"
    assert host.init(4711, 0) == "PRODUCER_FENCED"
    assert host.init(1000, -1) == "INVALID_REQUEST"
    assert host.init(-1, 0) == "INVALID_REQUEST"


def test_a_fenced_producer_cannot_roll_back_its_successor(host: TransactionHost) -> None:
    host.init()
    host.init()
    host.add(1000, 1, 0)
    assert host.init(1000, 0) == "PRODUCER_FENCED"
    assert host.state == "Ongoing 1000/1 [0]"
    assert host.init(1000, 1) == "CONCURRENT_TRANSACTIONS"
    host.write_markers()
    assert host.init(1000, 1) == "PRODUCER_FENCED"  # it was fenced to roll it back


def set_epoch(host: TransactionHost, epoch: int) -> None:
    while host.transaction.producer_epoch < epoch:
        host.init()


def test_a_used_up_epoch_leads_to_a_new_producer_id(host: TransactionHost) -> None:
    host.init()
    set_epoch(host, 32766)
    assert host.init(1000, 32766) == "NONE 1001/0"
    assert host.init(1000, 32766) == "NONE 1001/0"  # the answer got lost
    assert host.init(1000, 5) == "PRODUCER_FENCED"
    assert host.init() == "NONE 1001/1"


def test_the_end_at_the_last_epoch_answers_with_a_new_producer_id(host: TransactionHost) -> None:
    host.init()
    set_epoch(host, 32766)
    host.add(1000, 32766, 0, version=2)
    assert host.end(1000, 32766, version=5) == "NONE 1001/0"
    assert host.end(1000, 32766, version=5) == "CONCURRENT_TRANSACTIONS"
    assert host.transaction.next_producer_id == 1001
    host.restart()
    [markers] = host.write_markers()
    assert (markers.producer_id, markers.producer_epoch) == (1000, 32767)
    assert host.state == "CompleteCommit 1001/0"
    assert host.end(1000, 32766, version=5) == "NONE 1001/0"
    assert host.add(1001, 0, 0, version=2) == "NONE"
    assert host.end(1000, 32766, version=5) == "PRODUCER_FENCED"
    assert host.end(1000, 5, version=5) == "INVALID_PRODUCER_ID_MAPPING"


def test_the_coordinators_abort_at_the_last_epoch_leaves_no_epoch_to_go_on_with(
    host: TransactionHost,
) -> None:
    host.init()
    set_epoch(host, 32766)
    host.add(1000, 32766, 0, version=2)
    host.tick(60_000)
    [markers] = host.write_markers()
    assert (markers.producer_id, markers.producer_epoch) == (1000, 32767)
    assert host.end(1000, 32766, version=5) == "PRODUCER_FENCED"
    assert host.end(1000, 32766, commit=False, version=5) == "PRODUCER_FENCED"
    assert host.init() == "NONE 1001/0"


def test_a_decided_transaction_is_finished_after_a_restart(host: TransactionHost) -> None:
    host.init()
    host.add(1000, 0, 0, 1)
    host.end(1000, 0)
    host.restart()
    assert host.state == "PrepareCommit 1000/0 [0, 1]"
    [markers] = host.write_markers()
    assert len(markers.partitions) == 2
    assert host.state == "CompleteCommit 1000/0"


def test_an_open_transaction_goes_on_or_times_out_after_a_restart(host: TransactionHost) -> None:
    """Flink keeps (producer id, epoch) and commits with them after it has come back."""
    host.init(timeout_ms=1000)
    host.add(1000, 0, 0)
    host.restart()
    assert host.end(1000, 0) == "NONE"
    host.write_markers()
    host.add(1000, 0, 0)
    host.restart()
    host.tick(1000)
    assert host.state == "PrepareAbort 1000/1 [0]"


def test_markers_written_twice_complete_once(host: TransactionHost) -> None:
    host.init()
    host.add(1000, 0, 0)
    host.end(1000, 0)
    [markers] = host.write_markers()
    host.add(1000, 0, 1)
    host.carry_out(host.shard.markers_written(markers, 0))
    assert host.state == "Ongoing 1000/0 [1]"


def test_a_late_report_does_not_complete_the_next_transaction(host: TransactionHost) -> None:
    """The completion is tried again when it was not answered in time; in the old flow the next
    transaction may be decided by then, at the same epoch and without its markers."""
    host.init()
    host.add(1000, 0, 0)
    host.end(1000, 0)
    [markers] = host.write_markers()
    host.now_ms += 1
    host.add(1000, 0, 0)
    host.end(1000, 0)
    host.carry_out(host.shard.markers_written(markers, host.now_ms))
    assert host.state == "PrepareCommit 1000/0 [0]"
    host.write_markers()
    assert host.state == "CompleteCommit 1000/0"


def test_unknown_ids_and_producers_are_told_so(host: TransactionHost) -> None:
    assert host.add(1000, 0, 0) == "INVALID_PRODUCER_ID_MAPPING"
    assert host.end(1000, 0) == "INVALID_PRODUCER_ID_MAPPING"
    host.init()
    assert host.add(4711, 0, 0) == "INVALID_PRODUCER_ID_MAPPING"
    assert host.end(4711, 0, version=5) == "INVALID_PRODUCER_ID_MAPPING"
    assert host.init(transactional_id="") == "INVALID_REQUEST"


def test_two_phase_commit_is_refused_truthfully(host: TransactionHost) -> None:
    assert host.init(enable_2pc=True) == "TRANSACTIONAL_ID_AUTHORIZATION_FAILED"
    assert host.init(keep_prepared_txn=True) == "UNSUPPORTED_VERSION"


def test_an_idle_transactional_id_expires(host: TransactionHost) -> None:
    host = TransactionHost(transactional_id_expiration_ms=10_000)
    host.init()
    host.tick(9_999)
    assert ID in host.shard.transactions
    host.tick(10_000)
    assert ID not in host.shard.transactions
    assert host.log[-1][1] is None
    host.restart()
    assert ID not in host.shard.transactions


def test_idle_transactional_ids_are_looked_for_once_an_interval() -> None:
    host = TransactionHost(transactional_id_expiration_ms=10_000, expiry_check_interval_ms=60_000)
    host.init()
    host.tick(59_999)
    assert ID in host.shard.transactions
    host.tick(60_000)
    assert ID not in host.shard.transactions


def test_transactions_past_their_timeout_are_looked_for_once_an_interval() -> None:
    host = TransactionHost(abort_check_interval_ms=10_000)
    host.tick(1_000)
    host.init(timeout_ms=1_000)
    host.add(1000, 0, 0)
    host.tick(9_999)
    assert host.state == "Ongoing 1000/0 [0]"
    host.tick(10_000)
    assert host.state == "PrepareAbort 1000/1 [0]"


def test_verification_names_the_partitions_that_are_missing(host: TransactionHost) -> None:
    host.init()
    host.add(1000, 0, 0)
    inside, outside = TopicPartition("t", 0), TopicPartition("t", 1)

    assert host.shard.verify_partitions(ID, 1000, 0, [inside, outside]).response == {
        inside: ErrorCode.NONE,
        outside: ErrorCode.TRANSACTION_ABORTABLE,
    }
    host.end(1000, 0)
    with pytest.raises(ApiError) as error:
        host.shard.verify_partitions(ID, 1000, 0, [inside])
    assert error.value.code is ErrorCode.CONCURRENT_TRANSACTIONS


def test_transactions_are_found_by_state_producer_age_and_pattern(host: TransactionHost) -> None:
    host.init()
    host.add(1000, 0, 0)
    host.init(transactional_id="other")

    def found(**filters: object) -> list[str]:
        return [t.transactional_id for t in host.shard.select(5000, **filters)]  # type: ignore[arg-type]

    assert found() == [ID, "other"]
    assert found(states=["Ongoing"]) == [ID]
    assert found(states=["NoSuchState"]) == []
    assert found(producer_ids=[1001]) == ["other"]
    assert found(states=["Ongoing"], duration_ms=4999) == [ID]
    assert found(states=["Ongoing"], duration_ms=5000) == []
    assert found(matches=re.compile("o.*").fullmatch) == ["other"]


def test_records_keep_kafkas_layout(host: TransactionHost) -> None:
    """`__transaction_state` is read by Kafka's own tools: bytes checked against its format."""
    host.init(timeout_ms=60_000)
    key, value = host.log[-1]
    assert key == b"\x00\x00" + b"\x00\x03pay"
    assert value == (
        b"\x00\x01"  # version 1
        + (1000).to_bytes(8, "big")
        + b"\x00\x00"  # epoch
        + (60_000).to_bytes(4, "big")
        + b"\x00"  # Empty
        + b"\x00"  # no partitions: null
        + bytes(8)  # last update
        + b"\xff" * 8  # start
        + b"\x00"  # no tagged fields
    )
    host.add(1000, 0, 7, version=2)
    _, value = host.log[-1]
    assert value == (
        b"\x00\x01"
        + (1000).to_bytes(8, "big")
        + b"\x00\x00"
        + (60_000).to_bytes(4, "big")
        + b"\x01"  # Ongoing
        + b"\x02\x02t\x02\x00\x00\x00\x07\x00"
        + bytes(16)
        + b"\x01\x02\x02\x00\x02"  # one tagged field, number 2, of two bytes: the client's version
    )
