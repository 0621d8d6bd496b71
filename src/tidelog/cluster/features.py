"""The features of the cluster, their levels, and what a level means.

A feature's supported range says what this software can do; its finalized level (a record, in the
image) says what the cluster does. `kraft.version` 1 means that the voters stand in the metadata
log itself.
"""

from __future__ import annotations

from typing import NamedTuple

METADATA_VERSION = "metadata.version"
TRANSACTION_VERSION = "transaction.version"
GROUP_VERSION = "group.version"
KRAFT_VERSION = "kraft.version"


class LevelRange(NamedTuple):
    minimum: int
    maximum: int

    def __contains__(self, level: object) -> bool:
        return isinstance(level, int) and self.minimum <= level <= self.maximum


SUPPORTED_FEATURES: dict[str, LevelRange] = {
    GROUP_VERSION: LevelRange(0, 1),
    KRAFT_VERSION: LevelRange(0, 1),
    METADATA_VERSION: LevelRange(7, 25),
    TRANSACTION_VERSION: LevelRange(0, 2),
}

# What a new cluster starts with.
DEFAULT_LEVELS: dict[str, int] = {
    METADATA_VERSION: 25,
    GROUP_VERSION: 1,
    TRANSACTION_VERSION: 2,
}
DEFAULT_KRAFT_VERSION = 1

# Kafka's name of each metadata.version, and whether it brought records or fields that an older
# one could not hold: going back over such a step would lose metadata.
METADATA_VERSIONS: dict[int, tuple[str, bool]] = {
    7: ("3.3-IV3", True),
    8: ("3.4-IV0", True),
    9: ("3.5-IV0", False),
    10: ("3.5-IV1", False),
    11: ("3.5-IV2", True),
    12: ("3.6-IV0", False),
    13: ("3.6-IV1", True),
    14: ("3.6-IV2", True),
    15: ("3.7-IV0", True),
    16: ("3.7-IV1", False),
    17: ("3.7-IV2", True),
    18: ("3.7-IV3", False),
    19: ("3.7-IV4", False),
    20: ("3.8-IV0", False),
    21: ("3.9-IV0", False),
    22: ("4.0-IV0", False),
    23: ("4.0-IV1", True),
    24: ("4.0-IV2", False),
    25: ("4.0-IV3", False),
}


def metadata_changed_between(older: int, newer: int) -> bool:
    """Whether a cluster at `newer` may hold metadata that `older` cannot."""
    return any(METADATA_VERSIONS[level][1] for level in range(older + 1, newer + 1))
