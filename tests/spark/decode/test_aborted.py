from collections.abc import Iterable

from tests.spark.decode.logs import decode, rows_of
from tidelog.protocol.control_records import encode_end_marker
from tidelog.protocol.record_batch import iterate_headers
from tidelog.protocol.records import Record, encode_batch
from tidelog.spark.offsets import OffsetRange

WANTED = OffsetRange("orders", 0, 0, 1000)


def data(offset: int, producer_id: int, *, is_transactional: bool = True) -> bytes:
    return bytes(
        encode_batch(
            [Record(offset, 0, None, b"%d" % producer_id)],
            base_offset=offset,
            producer_id=producer_id,
            producer_epoch=0,
            base_sequence=0,
            is_transactional=is_transactional,
        )
    )


def marker(offset: int, producer_id: int, *, is_commit: bool) -> bytes:
    return bytes(
        encode_end_marker(
            producer_id=producer_id,
            producer_epoch=0,
            is_commit=is_commit,
            coordinator_epoch=0,
            timestamp_ms=0,
            base_offset=offset,
        )
    )


def offsets(responses: Iterable[bytes], aborted: Iterable[tuple[int, int]]) -> list[int]:
    return [row["offset"] for row in rows_of(decode(responses, WANTED, aborted=aborted))]


# Two producers whose transactions lie in each other, and one that has none.
LOG = b"".join(
    [
        data(0, 1),
        data(1, 2),
        data(2, 3, is_transactional=False),
        data(3, 1),
        marker(4, 1, is_commit=False),
        data(5, 2),
        data(6, 1),
        marker(7, 2, is_commit=True),
        data(8, 2),
        marker(9, 1, is_commit=True),
        data(10, 1),
        marker(11, 2, is_commit=False),
        marker(12, 1, is_commit=False),
    ]
)
ABORTED = [(1, 0), (2, 8), (1, 10)]
MARKERS = {(1, 0): 4, (2, 8): 11, (1, 10): 12}


def test_only_the_aborted_transaction_of_a_producer_is_dropped() -> None:
    assert offsets([LOG], ABORTED) == [1, 2, 5, 6]


def test_nothing_is_dropped_where_nothing_was_aborted() -> None:
    assert offsets([LOG], []) == [0, 1, 2, 3, 5, 6, 8, 10]


def test_a_response_may_begin_inside_an_aborted_transaction() -> None:
    """Each response lists the transactions that overlap it, also those that began before it."""
    ends = [(at + header.size_bytes, header.next_offset) for at, header in iterate_headers(LOG)]
    for end, next_offset in ends:
        # A broker lists a transaction until its marker is behind.
        later = [each for each in ABORTED if MARKERS[each] >= next_offset]
        decoded = offsets([LOG[:end]], ABORTED) + offsets([LOG[end:]], later)
        assert decoded == [1, 2, 5, 6], end


def test_data_without_a_transaction_is_kept_while_one_of_its_producer_is_aborted() -> None:
    log = data(0, 1) + data(1, 1, is_transactional=False) + marker(2, 1, is_commit=False)
    assert offsets([log], [(1, 0)]) == [1]
