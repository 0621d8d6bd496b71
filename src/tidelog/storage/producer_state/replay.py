"""Producer state from the batches of a log, after the newest good snapshot."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tidelog.protocol.control_records import EndMarker, decode_control
from tidelog.protocol.errors import ApiError
from tidelog.protocol.record_batch import BatchHeader
from tidelog.protocol.records import Record
from tidelog.storage.files import CorruptFileError
from tidelog.storage.producer_state.producer_state import ProducerStates
from tidelog.storage.segment.segment import Segment
from tidelog.storage.segment.transaction_index import AbortedTransaction


def note_batch(
    producers: ProducerStates, header: BatchHeader, read_records: Callable[[], list[Record]]
) -> AbortedTransaction | None:
    """Brings producer state up to a batch that is in the log, without checks.

    `read_records` is called for control batches only. Returns the entry that the transaction
    index gets when the batch is the marker of an abort.
    """
    aborted = None
    if header.producer_id >= 0:
        if not header.is_control:
            producers.note_batch(
                header.producer_id,
                header.producer_epoch,
                header.base_sequence,
                header.base_offset,
                header.last_offset,
                header.max_timestamp,
                header.is_transactional,
            )
        elif header.record_count:
            # Compaction leaves empty control batches of transactions that are gone.
            record = read_records()[0]
            marker = decode_control(record)
            if isinstance(marker, EndMarker):
                aborted = producers.note_marker(
                    header.producer_id,
                    header.producer_epoch,
                    marker.coordinator_epoch,
                    header.base_offset,
                    record.timestamp,
                    marker.is_commit,
                )
    producers.map_end_offset = header.next_offset
    return aborted


def replay(
    producers: ProducerStates,
    segments: Sequence[Segment],
    log_end_offset: int,
    index_aborted_from: int,
) -> None:
    """Brings producer state from `map_end_offset` up to the log end.

    Aborts whose marker is at `index_aborted_from` or later are written to the transaction index
    of their segment (which must have none of them yet).
    """
    start_offset = producers.map_end_offset
    for index, segment in enumerate(segments):
        if start_offset >= log_end_offset:
            break
        if index + 1 < len(segments) and segments[index + 1].base_offset <= start_offset:
            continue
        for position, header in segment.headers_from(start_offset):
            try:
                aborted = note_batch(
                    producers,
                    header,
                    lambda s=segment, p=position, h=header: s.read_records(p, h),  # type: ignore[misc]
                )
            except ApiError as error:
                raise CorruptFileError(
                    segment.path,
                    f"the end of a transaction at byte {position} is damaged ({error}). Restore "
                    "the file from a copy, or move the directory away to give up the partition",
                ) from error
            if aborted is not None and aborted.last_offset >= index_aborted_from:
                segment.transaction_index.append(aborted)
    producers.map_end_offset = max(producers.map_end_offset, log_end_offset)
