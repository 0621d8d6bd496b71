from __future__ import annotations

from pathlib import Path

import pytest

from tests.storage.log_making import FILES
from tidelog.storage.files import CorruptFileError
from tidelog.storage.segment.transaction_index import AbortedTransaction, TransactionIndex

FIRST = AbortedTransaction(5, 100, 110, 90)
SECOND = AbortedTransaction(6, 90, 120, 121)
THIRD = AbortedTransaction(5, 130, 140, 141)


def fill(path: Path, *aborted: AbortedTransaction) -> TransactionIndex:
    index = TransactionIndex(FILES, path, 90, exists=False)
    for entry in aborted:
        index.append(entry)
    return index


def test_the_file_has_kafkas_bytes(tmp_path: Path) -> None:
    path = tmp_path / "x.txnindex"
    fill(path, FIRST)
    assert path.read_bytes() == bytes.fromhex(
        "0000 0000000000000005 0000000000000064 000000000000006e 000000000000005a"
    )


def test_a_segment_without_aborts_has_no_file(tmp_path: Path) -> None:
    index = fill(tmp_path / "x.txnindex")
    index.write_out()
    assert not index.exists
    assert not index.path.exists()


def test_entries_are_read_again(tmp_path: Path) -> None:
    path = tmp_path / "x.txnindex"
    fill(path, FIRST, SECOND)
    assert TransactionIndex(FILES, path, 90, exists=True).entries == [FIRST, SECOND]


def test_collect_takes_what_overlaps_and_stops_at_the_last_stable_offset(tmp_path: Path) -> None:
    index = fill(tmp_path / "x.txnindex", FIRST, SECOND, THIRD)
    assert index.collect(0, 1000) == ([FIRST, SECOND, THIRD], False)
    assert index.collect(111, 1000) == ([SECOND, THIRD], False)
    assert index.collect(0, 100) == ([SECOND], True)
    assert index.collect(121, 130) == ([], True)


def test_truncation_drops_transactions_that_end_later(tmp_path: Path) -> None:
    path = tmp_path / "x.txnindex"
    index = fill(path, FIRST, SECOND, THIRD)
    index.truncate_to(120)
    assert index.entries == [FIRST]
    index.append(THIRD)
    assert TransactionIndex(FILES, path, 90, exists=True).entries == [FIRST, THIRD]


@pytest.mark.parametrize("damage", ["torn", "version", "order", "zeros"])
def test_damage_is_noticed(tmp_path: Path, damage: str) -> None:
    path = tmp_path / "x.txnindex"
    fill(path, FIRST, SECOND)
    whole = path.read_bytes()
    damaged = {
        "torn": whole[:-1],
        "version": b"\x01" + whole[1:],
        "order": whole[34:] + whole[:34],
        # What a power cut leaves of entries whose data had not been written back.
        "zeros": bytes(34),
    }
    path.write_bytes(damaged[damage])
    with pytest.raises(CorruptFileError, match=r"x\.txnindex"):
        TransactionIndex(FILES, path, 0, exists=True).check()
