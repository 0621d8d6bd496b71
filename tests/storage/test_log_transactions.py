from __future__ import annotations

from pathlib import Path

import pytest

from tests.storage.log_making import NOW_MS, append, make_batch, make_log, reopen
from tidelog.protocol.control_records import encode_end_marker
from tidelog.protocol.errors import ApiError, ErrorCode
from tidelog.storage.append_result import Origin
from tidelog.storage.log import Log


def send(log: Log, producer_id: int, sequence: int, *, epoch: int = 0, size: int = 1) -> int:
    return append(
        log,
        producer_id=producer_id,
        epoch=epoch,
        sequence=sequence,
        is_transactional=True,
        value=bytes(size),
    )


def end(
    log: Log,
    producer_id: int,
    *,
    commit: bool,
    epoch: int = 0,
    coordinator_epoch: int = 0,
    version: int = 1,
) -> int:
    marker = encode_end_marker(
        producer_id=producer_id,
        producer_epoch=epoch,
        is_commit=commit,
        coordinator_epoch=coordinator_epoch,
        timestamp_ms=NOW_MS,
    )
    result = log.append_as_leader(
        memoryview(marker), 0, NOW_MS, origin=Origin.COORDINATOR, transaction_version=version
    )
    return result.first_offset


def code_of_end(log: Log, producer_id: int, *, epoch: int, version: int) -> ErrorCode:
    with pytest.raises(ApiError) as caught:
        end(log, producer_id, commit=True, epoch=epoch, version=version)
    return caught.value.code


def test_the_first_unstable_offset_is_that_of_the_oldest_open_transaction(tmp_path: Path) -> None:
    log = make_log(tmp_path)
    append(log)
    assert log.first_unstable_offset is None
    send(log, 1, 0)
    send(log, 2, 0)
    assert log.first_unstable_offset == 1
    end(log, 1, commit=True)
    assert log.first_unstable_offset == 2
    end(log, 2, commit=False)
    assert log.first_unstable_offset is None


def test_aborts_are_found_across_segments_in_the_order_of_their_start(tmp_path: Path) -> None:
    log = make_log(tmp_path, segment_bytes=300)
    first_of_one = send(log, 1, 0, size=100)
    first_of_two = send(log, 2, 0, size=100)
    for sequence in range(1, 6):
        send(log, 1, sequence, size=100)
    end_of_two = end(log, 2, commit=False)
    for sequence in range(6, 9):
        send(log, 1, sequence, size=100)
    end_of_one = end(log, 1, commit=False)
    third = send(log, 3, 0, size=100)
    end(log, 3, commit=True)
    assert len(log.segments) > 3
    found = log.aborted_transactions(0, log.log_end_offset)
    assert [aborted[:3] for aborted in found] == [
        (1, first_of_one, end_of_one),
        (2, first_of_two, end_of_two),
    ]
    assert [a.producer_id for a in log.aborted_transactions(end_of_two + 1, third)] == [1]
    assert log.aborted_transactions(third, log.log_end_offset) == []


@pytest.mark.parametrize("how", ["clean", "crash", "crash after flush"])
def test_transactions_survive_a_restart(tmp_path: Path, how: str) -> None:
    log = make_log(tmp_path, segment_bytes=400)
    for producer_id in (1, 2, 3):
        send(log, producer_id, 0, size=50)
    end(log, 1, commit=False)
    if how == "crash after flush":
        log.flush()
    send(log, 2, 1, size=50)
    end(log, 2, commit=False)
    expected = log.aborted_transactions(0, log.log_end_offset)
    assert len(expected) == 2
    if how == "clean":
        log.close()
    else:
        log.release()
    again = reopen(
        tmp_path, clean=how == "clean", recovery_point=log.local.recovery_point, segment_bytes=400
    )
    assert again.aborted_transactions(0, again.log_end_offset) == expected
    assert again.first_unstable_offset == log.first_unstable_offset == 2
    assert end(again, 3, commit=False) == log.log_end_offset
    assert [a.producer_id for a in again.aborted_transactions(0, 1000)] == [1, 2, 3]
    assert again.first_unstable_offset is None


def test_truncation_opens_a_transaction_again(tmp_path: Path) -> None:
    log = make_log(tmp_path)
    send(log, 1, 0)
    marker = end(log, 1, commit=False)
    log.truncate_to(marker)
    assert log.first_unstable_offset == 0
    assert log.aborted_transactions(0, 100) == []
    end(log, 1, commit=True)
    assert log.aborted_transactions(0, 100) == []


def test_followers_index_aborts_too(tmp_path: Path) -> None:
    leader, follower = make_log(tmp_path / "leader"), make_log(tmp_path / "follower")
    send(leader, 1, 0)
    send(leader, 2, 0)
    end(leader, 1, commit=False)
    found = leader.read(0, 1 << 20, 3).file_slice
    assert found is not None
    follower.append_as_follower(memoryview(found.read(leader.files)))
    assert follower.aborted_transactions(0, 3) == leader.aborted_transactions(0, 3)
    assert follower.first_unstable_offset == 1


def test_a_transactional_producer_stays_in_its_transaction(tmp_path: Path) -> None:
    log = make_log(tmp_path)
    send(log, 1, 0)
    plain = make_batch(producer_id=1, epoch=0, sequence=1)
    with pytest.raises(ApiError) as caught:
        log.append_as_leader(plain, 0, NOW_MS)
    assert caught.value.code is ErrorCode.INVALID_TXN_STATE
    end(log, 1, commit=True)
    log.append_as_leader(make_batch(producer_id=1, epoch=0, sequence=1), 0, NOW_MS)


def test_version_1_ends_transactions_with_the_same_epoch(tmp_path: Path) -> None:
    log = make_log(tmp_path)
    send(log, 1, 0, epoch=4)
    assert code_of_end(log, 1, epoch=3, version=1) is ErrorCode.INVALID_PRODUCER_EPOCH
    end(log, 1, commit=True, epoch=4)
    send(log, 1, 1, epoch=4)
    end(log, 1, commit=True, epoch=4)


def test_version_2_ends_transactions_with_a_raised_epoch_once(tmp_path: Path) -> None:
    log = make_log(tmp_path)
    send(log, 1, 0, epoch=4)
    assert code_of_end(log, 1, epoch=4, version=2) is ErrorCode.INVALID_PRODUCER_EPOCH
    end(log, 1, commit=True, epoch=5, version=2)
    end(log, 1, commit=True, epoch=5, version=2)
    send(log, 1, 0, epoch=5)
    # The same marker, late: it must not end the transaction begun since.
    assert code_of_end(log, 1, epoch=5, version=2) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert log.first_unstable_offset is not None
    with pytest.raises(ApiError) as caught:
        send(log, 1, 1, epoch=4)
    assert caught.value.code is ErrorCode.INVALID_PRODUCER_EPOCH


def test_markers_of_a_fenced_coordinator_are_refused(tmp_path: Path) -> None:
    log = make_log(tmp_path)
    end(log, 1, commit=True, coordinator_epoch=7)
    with pytest.raises(ApiError) as caught:
        end(log, 1, commit=True, coordinator_epoch=6)
    assert caught.value.code is ErrorCode.TRANSACTION_COORDINATOR_FENCED


@pytest.mark.parametrize("opening", ["clean", "checkpointed", "unclean", "lacks offset indexes"])
@pytest.mark.parametrize("damage", ["torn", "flipped"])
def test_a_damaged_transaction_index_is_made_anew(
    tmp_path: Path, opening: str, damage: str
) -> None:
    log = make_log(tmp_path, segment_bytes=400)
    for producer_id in (1, 2):
        for sequence in range(3):
            send(log, producer_id, sequence, size=100)
    end(log, 1, commit=False)
    end(log, 2, commit=False)
    send(log, 3, 0, size=300)
    log.roll(NOW_MS)
    expected = log.aborted_transactions(0, log.log_end_offset)
    assert len(expected) == 2
    log.flush()
    log.close()
    for path in tmp_path.glob("*.txnindex"):
        whole = path.read_bytes()
        path.write_bytes(whole[:-7] if damage == "torn" else b"\x7f" + whole[1:])
        if opening == "lacks offset indexes":
            path.with_suffix(".index").unlink()
    again = reopen(
        tmp_path,
        clean=opening == "clean",
        recovery_point=0 if opening == "unclean" else log.local.recovery_point,
        segment_bytes=400,
    )
    assert again.aborted_transactions(0, again.log_end_offset) == expected
    assert again.first_unstable_offset == log.first_unstable_offset
