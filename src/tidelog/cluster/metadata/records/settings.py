"""Metadata records of settings: configuration, features, client quotas, producer-id blocks."""

from __future__ import annotations

from tidelog.protocol.schema import (
    BOOL,
    FLOAT64,
    INT8,
    INT16,
    INT32,
    INT64,
    STRING,
    Array,
    Message,
    Struct,
    field,
)


class ConfigRecord(Message, api_key=4, versions="0", flexible="0+"):
    """One setting of one resource; a null value removes it."""

    resource_type: int = field(INT8, "0+")
    resource_name: str = field(STRING, "0+")
    name: str = field(STRING, "0+")
    value: str | None = field(STRING, "0+", nullable="0+")


class FeatureLevelRecord(Message, api_key=12, versions="0", flexible="0+"):
    """The finalized level of a feature; 0 removes any feature but metadata.version."""

    name: str = field(STRING, "0+")
    feature_level: int = field(INT16, "0+")


class EntityData(Struct):
    entity_type: str = field(STRING, "0+")
    entity_name: str | None = field(STRING, "0+", nullable="0+")


class ClientQuotaRecord(Message, api_key=14, versions="0", flexible="0+"):
    """One quota of one entity; a null entity name is the default of its type."""

    entity: list[EntityData] = field(Array(EntityData), "0+")
    key: str = field(STRING, "0+")
    value: float = field(FLOAT64, "0+")
    remove: bool = field(BOOL, "0+")


class ProducerIdsRecord(Message, api_key=15, versions="0", flexible="0+"):
    """A block of producer ids went to a broker; the next block starts at `next_producer_id`."""

    broker_id: int = field(INT32, "0+")
    broker_epoch: int = field(INT64, "0+", default=-1)
    next_producer_id: int = field(INT64, "0+")
