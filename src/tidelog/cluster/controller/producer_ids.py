"""Producer ids, handed to brokers in blocks so that one record serves a thousand producers."""

from __future__ import annotations

from dataclasses import dataclass

from tidelog.cluster.controller.decision import Decision
from tidelog.cluster.metadata.image import MetadataImage
from tidelog.cluster.metadata.records.settings import ProducerIdsRecord
from tidelog.protocol.errors import ApiError, ErrorCode

BLOCK_SIZE = 1000


@dataclass(slots=True, frozen=True)
class ProducerIdBlock:
    """The ids `first` to `first + count - 1`, which nobody else has or will get."""

    first: int
    count: int


def allocate_producer_ids(
    broker_id: int, broker_epoch: int, image: MetadataImage
) -> Decision[ProducerIdBlock]:
    """The next block, for a registered broker."""
    broker = image.brokers.get(broker_id)
    if broker is None:
        raise ApiError(ErrorCode.BROKER_ID_NOT_REGISTERED, f"Broker {broker_id} is not registered")
    if broker.epoch != broker_epoch:
        raise ApiError(
            ErrorCode.STALE_BROKER_EPOCH, f"{broker_epoch} is not the epoch of broker {broker_id}"
        )
    first = image.next_producer_id
    record = ProducerIdsRecord(
        broker_id=broker_id, broker_epoch=broker_epoch, next_producer_id=first + BLOCK_SIZE
    )
    return Decision([record], ProducerIdBlock(first, BLOCK_SIZE))
