"""Which names a topic may have."""

from __future__ import annotations

import re

from tidelog.protocol.errors import ApiError, ErrorCode

CONSUMER_OFFSETS_TOPIC = "__consumer_offsets"
TRANSACTION_STATE_TOPIC = "__transaction_state"
CLUSTER_METADATA_TOPIC = "__cluster_metadata"
INTERNAL_TOPICS = frozenset(
    {CONSUMER_OFFSETS_TOPIC, TRANSACTION_STATE_TOPIC, "__share_group_state"}
)

NAME_LENGTH_MAX = 249
_LEGAL = re.compile(r"[a-zA-Z0-9._-]+")


def is_internal(name: str) -> bool:
    """Whether clients see the topic as internal."""
    return name in INTERNAL_TOPICS


def invalid_topic_name(name: str) -> str | None:
    """Why a topic cannot have this name; None when it can."""
    if not name:
        return "the empty string is not allowed"
    if name in (".", ".."):
        return f"'{name}' is not allowed"
    if len(name) > NAME_LENGTH_MAX:
        return f"the length of '{name}' is longer than the max allowed length {NAME_LENGTH_MAX}"
    if _LEGAL.fullmatch(name) is None:
        return (
            f"'{name}' contains one or more characters other than "
            "ASCII alphanumerics, '.', '_' and '-'"
        )
    return None


def validate_topic_name(name: str) -> None:
    """Raises INVALID_TOPIC_EXCEPTION for a name that no topic can have."""
    reason = invalid_topic_name(name)
    if reason is not None:
        raise ApiError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"Topic name is invalid: {reason}")


def has_collision_characters(name: str) -> bool:
    return "." in name or "_" in name


def collision_key(name: str) -> str:
    """Two topics with the same key cannot both exist: metric names make '.' and '_' one."""
    return name.replace(".", "_")
