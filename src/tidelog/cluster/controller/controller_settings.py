"""What the controller is told of its node's configuration."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from tidelog.cluster.features import SUPPORTED_FEATURES, LevelRange
from tidelog.cluster.metadata.image import MetadataImage
from tidelog.cluster.settings.topic_config import TOPIC_SETTINGS, effective_value


@dataclass(slots=True, frozen=True)
class ControllerSettings:
    """`broker_config` holds what the operator has set, by Kafka's names, in text form."""

    node_id: int
    cluster_id: str = ""
    default_partition_count: int = 1
    default_replication_factor: int = 1
    delete_topic_enable: bool = True
    broker_config: Mapping[str, str] = field(default_factory=dict)
    supported_features: Mapping[str, LevelRange] = field(default_factory=SUPPORTED_FEATURES.copy)

    def effective_broker_config(self, image: MetadataImage) -> dict[str, str]:
        """The broker settings that hold now: those of the operator under those of the image."""
        return {
            **self.broker_config,
            **image.cluster_configs(),
            **image.broker_configs(self.node_id),
        }

    def topic_setting(self, image: MetadataImage, topic: str, name: str) -> str:
        """A topic's effective value of a setting that has a default."""
        setting = TOPIC_SETTINGS[name]
        text = effective_value(
            setting, image.topic_configs(topic), self.effective_broker_config(image)
        )
        assert text is not None
        return text
