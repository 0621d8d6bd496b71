"""What a replica knows of producers and transactions is what its log says.

The log is read from its beginning and the producers are found out anew. What is remembered may be
less than that in one way only: of a producer's last batches, a snapshot keeps the last one.
"""

from __future__ import annotations

from tidelog.cluster.replication.partition import Partition
from tidelog.protocol.records import decode_records
from tidelog.storage.producer_state.producer_state import ProducerState, ProducerStates
from tidelog.storage.producer_state.replay import note_batch
from tidelog.testing.simulation.cluster.log_reader import LogReader
from tidelog.testing.simulation.node import SimulatedNode


def why_not_as_the_log_says(which: SimulatedNode, partition: Partition) -> str | None:
    """What differs; None also for logs that do not tell, because they lack their beginning or were
    compacted."""
    log = partition.log
    if log.config.is_compacted or log.log_start_offset or log.storage_error is not None:
        return None
    found = ProducerStates()
    ended: list[tuple[int, int]] = []
    for header, batch in LogReader(which, log).read(0, log.log_end_offset):
        state = found.get(header.producer_id)
        first_offset = -1 if state is None else state.transaction_first_offset
        note_batch(found, header, lambda b=batch, h=header: decode_records(b, h))  # type: ignore[misc]
        if header.is_control and first_offset >= 0:
            ended.append((first_offset, header.next_offset))
    known = log.producers
    if known.map_end_offset != log.log_end_offset:
        return f"knows its producers up to {known.map_end_offset} of {log.log_end_offset}"
    if known.producers.keys() != found.producers.keys():
        return (
            f"knows the producers {sorted(known.producers)}, and the log has "
            f"{sorted(found.producers)}"
        )
    for producer_id, state in found.producers.items():
        remembered = known.producers[producer_id]
        if not _agree(remembered, state):
            return (
                f"takes producer {producer_id} to be {_told(remembered)}, and the log says "
                f"{_told(state)}"
            )
    return _why_not_stable(partition, found, ended)


def _agree(remembered: ProducerState, found: ProducerState) -> bool:
    last = [each[:3] for each in remembered.batches]
    return (
        remembered.producer_epoch == found.producer_epoch
        and remembered.coordinator_epoch == found.coordinator_epoch
        and remembered.transaction_first_offset == found.transaction_first_offset
        and bool(last) == bool(found.batches)
        and last == [each[:3] for each in found.batches][len(found.batches) - len(last) :]
    )


def _why_not_stable(
    partition: Partition, found: ProducerStates, ended: list[tuple[int, int]]
) -> str | None:
    """The last stable offset is where the oldest transaction begins that is open, or whose marker
    is not committed; a node that has just started takes a marker in its log to be committed."""
    high_watermark = partition.high_watermark
    first_open = found.first_unstable_offset
    highest = high_watermark if first_open is None else min(first_open, high_watermark)
    pending = [first for first, end in ended if end > high_watermark]
    lowest = min([highest, *pending])
    if lowest <= partition.last_stable_offset <= highest:
        return None
    return (
        f"has the last stable offset {partition.last_stable_offset} at the high watermark "
        f"{high_watermark}; the log says {lowest} to {highest}"
    )


def _told(state: ProducerState) -> str:
    return (
        f"at epoch {state.producer_epoch}, coordinator epoch {state.coordinator_epoch}, with "
        f"{[each[:3] for each in state.batches]} and a transaction from "
        f"{state.transaction_first_offset}"
    )
