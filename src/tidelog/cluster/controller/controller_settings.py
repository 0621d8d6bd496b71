"""What the controller is told of its node's configuration."""

from __future__ import annotations

from collections.abc import Callable, Mapping
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

    def topic_settings(self, image: MetadataImage) -> Callable[[str, str], str]:
        """Looks up a topic's effective value of a setting that has a default, by both names."""
        broker_config = self.effective_broker_config(image)

        def topic_setting(topic: str, name: str) -> str:
            text = effective_value(TOPIC_SETTINGS[name], image.topic_configs(topic), broker_config)
            assert text is not None
            return text

        return topic_setting
