"""Metadata records of brokers and controllers: who is there, where, and in which state."""

from __future__ import annotations

from tidelog.protocol.schema import (
    BOOL,
    INT8,
    INT16,
    INT32,
    INT64,
    STRING,
    UINT16,
    UUID,
    Array,
    Message,
    Struct,
    field,
)


class BrokerEndpoint(Struct):
    name: str = field(STRING, "0+")
    host: str = field(STRING, "0+")
    port: int = field(UINT16, "0+")
    security_protocol: int = field(INT16, "0+")


class BrokerFeature(Struct):
    name: str = field(STRING, "0+")
    min_supported_version: int = field(INT16, "0+")
    max_supported_version: int = field(INT16, "0+")


class RegisterBrokerRecord(Message, api_key=0, versions="0-4", flexible="0+"):
    """A broker process with a new epoch, which is the offset of this record."""

    broker_id: int = field(INT32, "0+")
    is_migrating_zk_broker: bool = field(BOOL, "2+")
    incarnation_id: bytes = field(UUID, "0+")
    broker_epoch: int = field(INT64, "0+")
    end_points: list[BrokerEndpoint] = field(Array(BrokerEndpoint), "0+")
    features: list[BrokerFeature] = field(Array(BrokerFeature), "0+")
    rack: str | None = field(STRING, "0+", nullable="0+")
    fenced: bool = field(BOOL, "0+", default=True)
    in_controlled_shutdown: bool = field(BOOL, "1+")
    log_dirs: list[bytes] = field(Array(UUID), "3+", tag=0, tagged="3+")
    cordoned_log_dirs: list[bytes] | None = field(
        Array(UUID), "4+", nullable="4+", default=None, tag=1, tagged="4+"
    )


class UnregisterBrokerRecord(Message, api_key=1, versions="0", flexible="0+"):
    broker_id: int = field(INT32, "0+")
    broker_epoch: int = field(INT64, "0+")


class FenceBrokerRecord(Message, api_key=7, versions="0", flexible="0+"):
    id: int = field(INT32, "0+")
    epoch: int = field(INT64, "0+")


class UnfenceBrokerRecord(Message, api_key=8, versions="0", flexible="0+"):
    id: int = field(INT32, "0+")
    epoch: int = field(INT64, "0+")


class BrokerRegistrationChangeRecord(Message, api_key=17, versions="0-3", flexible="0+"):
    """`fenced`: 1 fences, -1 unfences, 0 leaves it. `in_controlled_shutdown`: 1 begins it.

    `cordoned_log_dirs`: None leaves them."""

    broker_id: int = field(INT32, "0+")
    broker_epoch: int = field(INT64, "0+")
    fenced: int = field(INT8, "0+", tag=0, tagged="0+")
    in_controlled_shutdown: int = field(INT8, "1+", tag=1, tagged="1+")
    log_dirs: list[bytes] = field(Array(UUID), "2+", tag=2, tagged="2+")
    cordoned_log_dirs: list[bytes] | None = field(
        Array(UUID), "3+", nullable="3+", default=None, tag=3, tagged="3+"
    )


class RegisterControllerRecord(Message, api_key=27, versions="0", flexible="0+"):
    controller_id: int = field(INT32, "0+")
    incarnation_id: bytes = field(UUID, "0+")
    zk_migration_ready: bool = field(BOOL, "0+")
    end_points: list[BrokerEndpoint] = field(Array(BrokerEndpoint), "0+")
    features: list[BrokerFeature] = field(Array(BrokerFeature), "0+")
