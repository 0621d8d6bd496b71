"""Producer ids, handed to brokers in blocks so that one record serves a thousand producers."""

from __future__ import annotations

from dataclasses import dataclass

from tidelog.cluster.controller.decision import Decision
from tidelog.cluster.controller.registered_brokers import check_broker_epoch
from tidelog.cluster.metadata.image import MetadataImage
from tidelog.cluster.metadata.records.settings import ProducerIdsRecord
from tidelog.protocol.errors import ApiError, ErrorCode

BLOCK_SIZE = 1000
_ID_MAX = (1 << 63) - 1


@dataclass(slots=True, frozen=True)
class ProducerIdBlock:
    """The ids `first` to `first + count - 1`, which nobody else has or will get."""

    first: int
    count: int


def allocate_producer_ids(
    broker_id: int, broker_epoch: int, image: MetadataImage
) -> Decision[ProducerIdBlock]:
    """The next block, for a registered broker."""
    check_broker_epoch(broker_id, broker_epoch, image)
    first = image.next_producer_id
    if first > _ID_MAX - BLOCK_SIZE:
        raise ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, "There are no more producer ids.")
    record = ProducerIdsRecord(
        broker_id=broker_id, broker_epoch=broker_epoch, next_producer_id=first + BLOCK_SIZE
    )
    return Decision([record], ProducerIdBlock(first, BLOCK_SIZE))
