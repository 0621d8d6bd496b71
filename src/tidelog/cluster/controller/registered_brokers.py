"""Whether a broker is who it says."""

from __future__ import annotations

from tidelog.cluster.metadata.image import BrokerImage, MetadataImage
from tidelog.protocol.errors import ApiError, ErrorCode


def registered_broker(broker_id: int, image: MetadataImage) -> BrokerImage:
    broker = image.brokers.get(broker_id)
    if broker is None:
        raise ApiError(
            ErrorCode.BROKER_ID_NOT_REGISTERED, f"Broker ID {broker_id} is not currently registered"
        )
    return broker


def check_broker_epoch(broker_id: int, broker_epoch: int, image: MetadataImage) -> BrokerImage:
    """The broker, which asks at this epoch; one that has been replaced is refused."""
    broker = image.brokers.get(broker_id)
    if broker is None:
        raise ApiError(
            ErrorCode.STALE_BROKER_EPOCH, f"No broker registration found for broker id {broker_id}"
        )
    if broker.epoch != broker_epoch:
        raise ApiError(
            ErrorCode.STALE_BROKER_EPOCH,
            f"Expected broker epoch {broker.epoch}, but got broker epoch {broker_epoch}",
        )
    return broker
