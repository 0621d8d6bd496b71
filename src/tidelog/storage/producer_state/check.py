"""Checks of several batches at once against producer state, before any of them is written."""

from __future__ import annotations

from collections.abc import Iterable

from tidelog.protocol.control_records import EndMarker, decode_control
from tidelog.protocol.record_batch import BatchHeader
from tidelog.protocol.records import decode_records
from tidelog.storage.append_result import Origin
from tidelog.storage.producer_state.producer_state import (
    BatchMetadata,
    ProducerState,
    ProducerStates,
)


def check_producers(
    producers: ProducerStates,
    batches: memoryview,
    found: Iterable[tuple[int, BatchHeader]],
    origin: Origin,
    transaction_version: int,
) -> BatchMetadata | None:
    """Checks each batch as if those before it were in the log already; changes nothing.

    Returns the batch that the first duplicate among them repeats: then, as in Kafka, the whole
    append counts as that. Raises ApiError.
    """
    states: dict[int, ProducerState] = {}
    for at, header in found:
        producer_id = header.producer_id
        if producer_id < 0:
            continue
        state = states.get(producer_id)
        if state is None:
            known = producers.get(producer_id)
            state = ProducerState(producer_id) if known is None else known.copy()
            states[producer_id] = state
        epoch = header.producer_epoch
        if header.is_control:
            for record in decode_records(batches[at : at + header.size_bytes], header):
                marker = decode_control(record)
                if isinstance(marker, EndMarker):
                    state.check_marker(epoch, marker.coordinator_epoch, transaction_version)
                    state.add_marker(epoch, marker.coordinator_epoch, record.timestamp)
            continue
        duplicate = state.check_batch(
            epoch,
            header.base_sequence,
            header.record_count,
            header.is_transactional,
            origin is Origin.CLIENT,
        )
        if duplicate is not None:
            return duplicate
        state.add_batch(epoch, BatchMetadata(header.last_sequence, 0, 0, 0))
    return None
