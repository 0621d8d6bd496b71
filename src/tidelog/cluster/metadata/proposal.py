"""Changes of the metadata on their way into its log.

A proposal commits or fails, once. Those that wait when the log can take more go together: they are
one batch and share one sync.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from tidelog.cluster.metadata.image import MetadataDelta, MetadataImage
from tidelog.promise import Promise
from tidelog.protocol.records import Record, encode_batch

RECORDS_PER_BATCH_MAX = 10_000


@dataclass(slots=True, eq=False)
class Proposal:
    """Records that count together or not at all.

    `committed` is kept when the image has them and all listeners have heard of it; it fails with an
    ApiError when they are not, or not known to be, in the log. `after` is the image that they make
    of the one before, which is that of the proposal before.
    """

    after: MetadataImage
    delta: MetadataDelta
    values: Sequence[bytes]  # the records, encoded
    timestamp_ms: int
    first_offset: int  # of the records; decisions may name it
    committed: Promise[None] = field(default_factory=Promise)


def take_group(waiting: deque[Proposal]) -> list[Proposal]:
    """Takes the proposals that go into the log next, with one sync.

    Their records become one batch. So a batch of decisions is on disk before the next one is
    written, by which damage is told from an end that a power cut tore: see `metadata_damage`.
    """
    group: list[Proposal] = []
    record_count = 0
    while waiting:
        proposal = waiting[0]
        if record_count and record_count + len(proposal.values) > RECORDS_PER_BATCH_MAX:
            break
        record_count += len(proposal.values)
        group.append(waiting.popleft())
    return group


def encode_group(group: Sequence[Proposal]) -> bytearray:
    """The batch of a group, as it is appended."""
    records: list[Record] = []
    for proposal in group:
        for value in proposal.values:
            records.append(Record(len(records), proposal.timestamp_ms, None, value))
    return encode_batch(records)
