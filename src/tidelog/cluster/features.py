"""The features of the cluster, their levels, and what a level means.

A feature's supported range says what this software can do; its finalized level (a record, in the
image) says what the cluster does. `FEATURES` has the levels that Kafka 4.3 knows, so that a level
this software lacks is told from one that does not exist; `SUPPORTED_FEATURES` has those that work
here. `kraft.version` 1 means that the voters stand in the metadata log itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from tidelog.errors import TidelogError

METADATA_VERSION = "metadata.version"
TRANSACTION_VERSION = "transaction.version"
GROUP_VERSION = "group.version"
KRAFT_VERSION = "kraft.version"
ELIGIBLE_LEADER_REPLICAS_VERSION = "eligible.leader.replicas.version"
SHARE_VERSION = "share.version"
STREAMS_VERSION = "streams.version"

# What a metadata.version allows for the first time.
MV_SCRAM = 11
MV_ISR_SHRINK_KEEPS_EPOCH = 12
MV_CONTROLLER_REGISTRATION = 15
MV_LOG_DIRECTORIES = 17
MV_CORDONED_LOG_DIRECTORIES = 30


class FeatureError(TidelogError):
    """A feature or a level that there is not, or one whose dependencies are not met."""


class LevelRange(NamedTuple):
    minimum: int
    maximum: int

    def __contains__(self, level: object) -> bool:
        return isinstance(level, int) and self.minimum <= level <= self.maximum

    def __str__(self) -> str:
        if self.minimum == self.maximum:
            return str(self.minimum)
        return f"{self.minimum}-{self.maximum}"


NOT_SUPPORTED = LevelRange(0, 0)

SUPPORTED_FEATURES: dict[str, LevelRange] = {
    ELIGIBLE_LEADER_REPLICAS_VERSION: LevelRange(0, 1),
    GROUP_VERSION: LevelRange(0, 1),
    KRAFT_VERSION: LevelRange(0, 1),
    METADATA_VERSION: LevelRange(7, 30),
    SHARE_VERSION: NOT_SUPPORTED,
    STREAMS_VERSION: NOT_SUPPORTED,
    TRANSACTION_VERSION: LevelRange(0, 2),
}

UNSERVED_FEATURES = frozenset({SHARE_VERSION, STREAMS_VERSION})
"""Kinds of groups that are not served. A directory of Kafka's has them switched on; everything else
in it is served, and the first controller sets them to 0."""

# Kafka 4.3 has begun 4.4-IV0: it may still change, and has changed nothing yet.
_UNSTABLE_FEATURES = {**SUPPORTED_FEATURES, METADATA_VERSION: LevelRange(7, 31)}


def supported_features(*, unstable: bool) -> Mapping[str, LevelRange]:
    """What a node supports; `unstable` is its setting unstable.feature.versions.enable."""
    return _UNSTABLE_FEATURES if unstable else SUPPORTED_FEATURES


class FeatureLevel(NamedTuple):
    """One level of a feature: a new cluster has it from the metadata.version `since` on."""

    since: int
    dependencies: Mapping[str, int] = {}


_LOWEST = SUPPORTED_FEATURES[METADATA_VERSION].minimum

# Each feature's levels from 0 on; metadata.version has its own table.
FEATURES: dict[str, tuple[FeatureLevel, ...]] = {
    KRAFT_VERSION: (FeatureLevel(_LOWEST), FeatureLevel(21)),
    TRANSACTION_VERSION: (FeatureLevel(_LOWEST), FeatureLevel(24), FeatureLevel(24)),
    GROUP_VERSION: (FeatureLevel(_LOWEST), FeatureLevel(22)),
    ELIGIBLE_LEADER_REPLICAS_VERSION: (
        FeatureLevel(_LOWEST),
        FeatureLevel(26, {METADATA_VERSION: 23}),
    ),
    SHARE_VERSION: (FeatureLevel(_LOWEST), FeatureLevel(28)),
    STREAMS_VERSION: (FeatureLevel(_LOWEST), FeatureLevel(29)),
}

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
    26: ("4.1-IV0", False),
    27: ("4.1-IV1", False),
    28: ("4.2-IV0", False),
    29: ("4.2-IV1", False),
    30: ("4.3-IV0", True),
    31: ("4.4-IV0", False),
}

DEFAULT_METADATA_VERSION = SUPPORTED_FEATURES[METADATA_VERSION].maximum
# A lone node's voter stands in the log from the first record on, whatever the metadata.version.
DEFAULT_KRAFT_VERSION = 1


def metadata_changed_between(older: int, newer: int) -> bool:
    """Whether a cluster at `newer` may hold metadata that `older` cannot."""
    return any(METADATA_VERSIONS[level][1] for level in range(older + 1, newer + 1))


def parse_metadata_version(
    text: str, supported: Mapping[str, LevelRange] = SUPPORTED_FEATURES
) -> int:
    """The level of a name as Kafka's tools take it (4.1-IV1, 4.1, 4.1.0) or of a number (27).

    A release means the last of its levels. Raises FeatureError with the names that there are.
    """
    names = {
        level: name
        for level, (name, _) in METADATA_VERSIONS.items()
        if level in supported[METADATA_VERSION]
    }
    levels = {str(level): level for level in names}
    for level, name in names.items():
        release, _, _ = name.partition("-")
        levels[release] = levels[name] = level
    major_and_minor = ".".join(text.strip().split(".")[:2])
    if major_and_minor not in levels:
        raise FeatureError(
            f"Unknown metadata.version '{text}'. Supported metadata.version are: "
            f"{', '.join(names.values())}"
        )
    return levels[major_and_minor]


def default_level(feature: str, metadata_version: int) -> int:
    """The level of a feature in a new cluster: the highest this software has at that version."""
    levels = FEATURES[feature]
    wanted = max(level for level, each in enumerate(levels) if each.since <= metadata_version)
    return min(wanted, SUPPORTED_FEATURES[feature].maximum)


def initial_levels(
    metadata_version: int = DEFAULT_METADATA_VERSION, chosen: Mapping[str, int] | None = None
) -> dict[str, int]:
    """The finalized levels of a new cluster, metadata.version first, without those that are 0.

    `chosen` replaces defaults. Raises FeatureError for what cannot be. The quorum's own feature,
    kraft.version, is not among them: it is no decision of the controller.
    """
    levels = {METADATA_VERSION: metadata_version}
    levels |= {name: default_level(name, metadata_version) for name in FEATURES}
    for name, level in (chosen or {}).items():
        if name not in FEATURES:
            supported = ", ".join(sorted(FEATURES))
            raise FeatureError(f"Unsupported feature: {name}. Supported features are: {supported}")
        supported_levels = SUPPORTED_FEATURES[name]
        if name == KRAFT_VERSION:
            supported_levels = LevelRange(DEFAULT_KRAFT_VERSION, DEFAULT_KRAFT_VERSION)
        if level not in supported_levels:
            raise FeatureError(
                f"A new cluster cannot have {name} with feature level {level}; supported is "
                f"{supported_levels}"
            )
        levels[name] = level
    for name, level in levels.items():
        check_dependencies(name, level, levels)
    return {name: level for name, level in levels.items() if level and name != KRAFT_VERSION}


def check_dependencies(feature: str, level: int, levels: Mapping[str, int]) -> None:
    """Raises FeatureError when `levels` do not have what this level of a feature needs."""
    if feature == METADATA_VERSION:
        return
    for name, needed in FEATURES[feature][level].dependencies.items():
        if levels.get(name, 0) < needed:
            raise FeatureError(
                f"{feature} could not be set to {level} because it depends on {name} level {needed}"
            )


DEFAULT_LEVELS: dict[str, int] = initial_levels()
"""What a new cluster starts with."""
