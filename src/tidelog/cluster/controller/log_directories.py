"""The log directories of brokers: where replicas are, and what follows when one fails."""

from __future__ import annotations

from collections.abc import Sequence

from tidelog.cluster.directory_ids import MIGRATING, UNASSIGNED
from tidelog.cluster.features import MV_LOG_DIRECTORIES
from tidelog.cluster.metadata.image import MetadataImage


def new_directories(image: MetadataImage, replicas: Sequence[int]) -> tuple[bytes, ...]:
    """The log directories of new replicas; none where the cluster's level does not know them."""
    if image.metadata_version < MV_LOG_DIRECTORIES:
        return ()
    return tuple(default_directory(image, replica) for replica in replicas)


def default_directory(image: MetadataImage, broker_id: int) -> bytes:
    """The broker's only directory, else its own choice."""
    broker = image.brokers.get(broker_id)
    if broker is None:
        return UNASSIGNED
    if not broker.log_dirs:
        return MIGRATING
    return broker.log_dirs[0] if len(broker.log_dirs) == 1 else UNASSIGNED
