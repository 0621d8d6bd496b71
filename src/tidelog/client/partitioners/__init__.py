"""Which partition a record goes to."""

from tidelog.client.partitioners.choice import Choice, Partitioner
from tidelog.client.partitioners.hot_keys import (
    HotKeySplitting,
    Salt,
    merge_split_keys,
    read_salt,
)
from tidelog.client.partitioners.key_hash import KeyHash, murmur2
from tidelog.client.partitioners.rack_aware import RackAware
from tidelog.client.partitioners.spreading import Random, RoundRobin
from tidelog.client.topic_layout import TopicLayout

__all__ = [
    "Choice",
    "HotKeySplitting",
    "KeyHash",
    "Partitioner",
    "RackAware",
    "Random",
    "RoundRobin",
    "Salt",
    "TopicLayout",
    "merge_split_keys",
    "murmur2",
    "read_salt",
]
