"""What lies between two images when the records between them are not known.

A node that was away for long gets a snapshot in place of them. Cost: one pass over both images.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import TypeVar

from tidelog.cluster.metadata.image import MetadataDelta, MetadataImage

Key = TypeVar("Key", bound=Hashable)


def image_difference(before: MetadataImage, after: MetadataImage) -> MetadataDelta:
    """The delta that leads from one image to the other. A topic that was deleted and made again
    has another id: it is deleted and created."""
    delta = MetadataDelta(
        configs=_changed(before.configs, after.configs),
        brokers=_changed(before.brokers, after.brokers),
        controllers=_changed(before.controllers, after.controllers),
        features=_changed(before.features, after.features),
        quotas=_changed(before.client_quotas, after.client_quotas),
        scram=_changed(before.scram, after.scram),
        acls=_changed(before.acls, after.acls),
    )
    for topic_id in before.topics_by_id.keys() - after.topics_by_id.keys():
        delta.deleted_topics.append(before.topics_by_id[topic_id])
    for topic_id, topic in after.topics_by_id.items():
        known = before.topics_by_id.get(topic_id)
        if known is None:
            delta.created_topics.append(topic)
        elif known != topic:
            delta.changed_topics.append((known, topic))
    delta.deleted_topics.sort()
    return delta


def _changed(before: Mapping[Key, object], after: Mapping[Key, object]) -> set[Key]:
    return {key for key in before.keys() | after.keys() if before.get(key) != after.get(key)}
