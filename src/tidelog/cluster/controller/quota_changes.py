"""Client quotas: setting them, and finding those that a filter names."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from tidelog.cluster.controller.decision import Decision, check_record_limit
from tidelog.cluster.metadata.image import MetadataImage, QuotaEntity
from tidelog.cluster.metadata.records.settings import ClientQuotaRecord, EntityData
from tidelog.cluster.settings.config_schema import INT_MAX, LONG_MAX
from tidelog.protocol.errors import ApiError, ErrorCode
from tidelog.protocol.schema import Message

USER = "user"
CLIENT_ID = "client-id"
IP = "ip"

# The largest value of each quota, and whether it has to be a whole number.
_USER_QUOTAS: dict[str, tuple[float, bool]] = {
    "producer_byte_rate": (LONG_MAX, True),
    "consumer_byte_rate": (LONG_MAX, True),
    "request_percentage": (float("inf"), False),
    "controller_mutation_rate": (float("inf"), False),
}
_IP_QUOTAS: dict[str, tuple[float, bool]] = {"connection_creation_rate": (INT_MAX, True)}

_HOST = re.compile(r"(?!-)[A-Za-z0-9-]{1,63}(\.[A-Za-z0-9-]{1,63})*\.?")

MATCH_EXACT = 0
MATCH_DEFAULT = 1
MATCH_ANY = 2


class QuotaAlteration(NamedTuple):
    """Quotas of one entity; a value of None removes that quota."""

    entity: Sequence[tuple[str, str | None]]
    operations: Sequence[tuple[str, float | None]]


class QuotaRow(NamedTuple):
    entity: tuple[tuple[str, str | None], ...]
    error: ApiError | None


class QuotaFilter(NamedTuple):
    """One part of an entity to look for: an exact name, the default, or any name."""

    entity_type: str
    match_type: int
    match: str | None = None


def alter_client_quotas(
    alterations: Sequence[QuotaAlteration], image: MetadataImage, *, validate_only: bool = False
) -> Decision[list[QuotaRow]]:
    """Sets and removes quotas, entity by entity."""
    records: list[Message] = []
    rows = []
    seen: set[QuotaEntity] = set()
    for alteration in alterations:
        entity = tuple(alteration.entity)
        try:
            key = _checked_entity(entity)
            if key in seen:
                raise _invalid(f"Ignoring duplicate entity {dict(entity)}")
            seen.add(key)
            new_records = list(_quota_records(key, alteration.operations, image))
            check_record_limit(records + new_records)
        except ApiError as error:
            rows.append(QuotaRow(entity, error))
            continue
        records += new_records
        rows.append(QuotaRow(entity, None))
    return Decision([] if validate_only else records, rows)


def _checked_entity(entity: Sequence[tuple[str, str | None]]) -> QuotaEntity:
    if not entity:
        raise _invalid("Invalid empty client quota entity")
    kinds = [kind for kind, _ in entity]
    for kind, name in entity:
        if kind not in (USER, CLIENT_ID, IP):
            raise _invalid(f"Unhandled client quota entity type: {kind}")
        if kinds.count(kind) > 1:
            raise _invalid(f"Invalid client quota entity, duplicate entity entry {kind}")
        if name == "":
            raise _invalid(f"Empty {kind} not supported")
        if kind == IP and name is not None and not _is_host(name):
            raise _invalid(f"{name} is not a valid IP or resolvable host.")
    if IP in kinds and len(kinds) > 1:
        raise _invalid(
            "Invalid quota entity combination, IP entity should not be combined with "
            "User or ClientId"
        )
    return tuple(sorted(entity, key=lambda part: part[0]))


def _is_host(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return _HOST.fullmatch(name) is not None
    return True


def _quota_records(
    entity: QuotaEntity, operations: Sequence[tuple[str, float | None]], image: MetadataImage
) -> Iterator[Message]:
    current: Mapping[str, float] = image.client_quotas.get(entity, {})
    known = _IP_QUOTAS if entity[0][0] == IP else _USER_QUOTAS
    keys = [key for key, _ in operations]
    for key, value in operations:
        if keys.count(key) > 1:
            raise _invalid(f"Duplicate quota key {key}, not updating quota for this entity")
        if value is not None:
            _check_quota(key, value, known)
    for key, value in operations:
        if value is None:
            if key in current:
                yield ClientQuotaRecord(entity=_entity_data(entity), key=key, remove=True)
        elif current.get(key) != value:
            yield ClientQuotaRecord(entity=_entity_data(entity), key=key, value=value)


def _check_quota(key: str, value: float, known: Mapping[str, tuple[float, bool]]) -> None:
    if key not in known:
        raise _invalid(f"Invalid configuration key {key}")
    largest, whole = known[key]
    if not value > 0:
        raise _invalid(f"Quota {key} must be greater than 0")
    if value > largest:
        raise _invalid(f"Proposed value for {key} is too large.")
    if whole and abs(value % 1.0) > 1e-6:
        raise _invalid(f"{key} cannot be a fractional value.")


def _entity_data(entity: QuotaEntity) -> list[EntityData]:
    return [EntityData(entity_type=kind, entity_name=name) for kind, name in entity]


def _invalid(message: str) -> ApiError:
    return ApiError(ErrorCode.INVALID_REQUEST, message)


def find_client_quotas(
    filters: Sequence[QuotaFilter], image: MetadataImage, *, strict: bool = False
) -> dict[QuotaEntity, Mapping[str, float]]:
    """The quotas of entities that match every filter; a strict search allows no further parts."""
    by_type: dict[str, QuotaFilter] = {}
    for each in filters:
        if each.entity_type not in (USER, CLIENT_ID, IP):
            raise ApiError(
                ErrorCode.UNSUPPORTED_VERSION if each.entity_type else ErrorCode.INVALID_REQUEST,
                f"Custom entity type '{each.entity_type}' not supported",
            )
        if each.entity_type in by_type:
            raise _invalid(f"Entity type {each.entity_type} cannot appear more than once")
        if each.match_type not in (MATCH_EXACT, MATCH_DEFAULT, MATCH_ANY):
            raise _invalid(f"Unknown match type {each.match_type}")
        if (each.match_type == MATCH_EXACT) != (each.match is not None):
            raise _invalid("A name belongs to an exact match, and to no other")
        by_type[each.entity_type] = each
    if IP in by_type and len(by_type) > 1:
        raise _invalid("An IP filter cannot be combined with a user or client id filter")
    return {
        entity: quotas
        for entity, quotas in image.client_quotas.items()
        if _matches(dict(entity), by_type, strict)
    }


def _matches(
    entity: Mapping[str, str | None], filters: Mapping[str, QuotaFilter], strict: bool
) -> bool:
    if not filters.keys() <= entity.keys() or (strict and entity.keys() != filters.keys()):
        return False
    for kind, each in filters.items():
        name = entity[kind]
        if each.match_type == MATCH_EXACT and name != each.match:
            return False
        if each.match_type == MATCH_DEFAULT and name is not None:
            return False
    return True
