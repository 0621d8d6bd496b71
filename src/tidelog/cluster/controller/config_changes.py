"""Changing settings of topics, brokers, groups and client metrics subscriptions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import IntEnum
from typing import NamedTuple

from tidelog.cluster.controller.controller_settings import ControllerSettings
from tidelog.cluster.controller.decision import Decision, check_record_limit
from tidelog.cluster.features import ELIGIBLE_LEADER_REPLICAS_VERSION
from tidelog.cluster.metadata.image import ConfigResource, ConfigResourceType, MetadataImage
from tidelog.cluster.metadata.records.settings import ConfigRecord
from tidelog.cluster.metadata.records.topics import ClearElrRecord
from tidelog.cluster.settings.broker_config import (
    BROKER_SETTINGS,
    keeps_everybody_out,
    needs_listener_prefix,
)
from tidelog.cluster.settings.client_metrics_config import (
    CLIENT_METRICS_SETTINGS,
    validate_client_metrics_config,
)
from tidelog.cluster.settings.config_schema import ConfigType, Schema, parse_list
from tidelog.cluster.settings.group_config import GROUP_SETTINGS, validate_group_config
from tidelog.cluster.settings.topic_config import (
    TOPIC_SETTINGS,
    effective_value,
    validate_topic_config,
)
from tidelog.protocol.errors import ApiError, ErrorCode
from tidelog.protocol.schema import Message

MIN_INSYNC_REPLICAS = "min.insync.replicas"
_VALUE_LENGTH_MAX = (1 << 15) - 1


class Operation(IntEnum):
    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


class ConfigOperation(NamedTuple):
    name: str
    operation: int
    value: str | None = None


class ConfigChange(NamedTuple):
    """Operations on the settings of one resource: all of them happen or none."""

    resource: ConfigResource
    operations: Sequence[ConfigOperation]


class ConfigReplacement(NamedTuple):
    """All the settings that a resource shall have from now on."""

    resource: ConfigResource
    configs: Mapping[str, str | None]


class ConfigRow(NamedTuple):
    resource: ConfigResource
    error: ApiError | None


_SCHEMAS: dict[int, Schema] = {
    ConfigResourceType.TOPIC: TOPIC_SETTINGS,
    ConfigResourceType.BROKER: BROKER_SETTINGS,
    ConfigResourceType.GROUP: GROUP_SETTINGS,
    ConfigResourceType.CLIENT_METRICS: CLIENT_METRICS_SETTINGS,
}


def alter_configs(
    replacements: Sequence[ConfigReplacement],
    image: MetadataImage,
    settings: ControllerSettings,
    *,
    validate_only: bool = False,
) -> Decision[list[ConfigRow]]:
    """Replaces the settings of resources: what is not named goes back to its default."""
    wanted = []
    for replacement in replacements:
        gone = image.configs.get(replacement.resource, {}).keys() - replacement.configs.keys()
        operations = [
            ConfigOperation(name, Operation.SET, value)
            for name, value in replacement.configs.items()
        ]
        operations += [ConfigOperation(name, Operation.DELETE) for name in sorted(gone)]
        wanted.append(ConfigChange(replacement.resource, operations))
    return incremental_alter_configs(wanted, image, settings, validate_only=validate_only)


def incremental_alter_configs(
    changes: Sequence[ConfigChange],
    image: MetadataImage,
    settings: ControllerSettings,
    *,
    validate_only: bool = False,
) -> Decision[list[ConfigRow]]:
    """Changes single settings; what is not named stays."""
    records: list[Message] = []
    rows = []
    seen: set[ConfigResource] = set()
    for change in changes:
        resource = change.resource
        try:
            if resource in seen:
                raise ApiError(ErrorCode.INVALID_REQUEST, "Each resource must appear at most once.")
            seen.add(resource)
            new_records = _change(resource, change.operations, image, settings)
            check_record_limit(records + new_records)
        except ApiError as error:
            rows.append(ConfigRow(resource, error))
            continue
        records += new_records
        rows.append(ConfigRow(resource, None))
    records += _cleared_eligible_replicas(records, image)
    return Decision([] if validate_only else records, rows)


def _cleared_eligible_replicas(records: Sequence[Message], image: MetadataImage) -> list[Message]:
    """Who is eligible to lead was found out with another min.insync.replicas: it starts anew."""
    if not image.finalized_level(ELIGIBLE_LEADER_REPLICAS_VERSION):
        return []
    topics: dict[str, None] = {}
    for record in records:
        if isinstance(record, ConfigRecord) and record.name == MIN_INSYNC_REPLICAS:
            if record.resource_type != ConfigResourceType.TOPIC:
                return [ClearElrRecord()]
            topics[record.resource_name] = None
    return [ClearElrRecord(topic_name=topic) for topic in topics]


def _change(
    resource: ConfigResource,
    operations: Sequence[ConfigOperation],
    image: MetadataImage,
    settings: ControllerSettings,
) -> list[Message]:
    schema = _SCHEMAS.get(resource.type)
    if schema is None:
        raise ApiError(
            ErrorCode.INVALID_REQUEST, f"Unexpected resource type {_type_name(resource.type)}."
        )
    names = [operation.name for operation in operations]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise ApiError(
            ErrorCode.INVALID_REQUEST, f"Error due to duplicate config keys: {', '.join(twice)}"
        )
    nulls = [
        each.name
        for each in operations
        if each.value is None and each.operation != Operation.DELETE
    ]
    if nulls:
        raise ApiError(
            ErrorCode.INVALID_REQUEST, f"Null value not supported for : {', '.join(nulls)}"
        )
    before = image.configs.get(resource, {})
    after = dict(before)
    for operation in operations:
        if operation.operation == Operation.DELETE:
            after.pop(operation.name, None)
        else:
            value = _new_value(operation, schema, resource, image, settings)
            if len(value) > _VALUE_LENGTH_MAX:
                raise ApiError(
                    ErrorCode.INVALID_CONFIG,
                    f"The value of {operation.name} is longer than {_VALUE_LENGTH_MAX} characters.",
                )
            after[operation.name] = value
    _validate(resource, after, names, image, settings)
    # Brokers are told even of values that stay: what they point at may have changed.
    always = resource.type == ConfigResourceType.BROKER
    return [
        ConfigRecord(
            resource_type=resource.type,
            resource_name=resource.name,
            name=name,
            value=after.get(name),
        )
        for name in names
        if before.get(name) != after.get(name) or (always and name in after)
    ]


def _new_value(
    operation: ConfigOperation,
    schema: Schema,
    resource: ConfigResource,
    image: MetadataImage,
    settings: ControllerSettings,
) -> str:
    assert operation.value is not None
    if operation.operation == Operation.SET:
        return operation.value
    if operation.operation not in (Operation.APPEND, Operation.SUBTRACT):
        raise ApiError(ErrorCode.INVALID_REQUEST, f"Unknown operation type {operation.operation}")
    setting = schema[operation.name]
    if setting.type != ConfigType.LIST:
        raise ApiError(
            ErrorCode.INVALID_CONFIG,
            f"Can't {Operation(operation.operation).name} to key {operation.name} "
            "because its type is not LIST.",
        )
    current = effective_value(
        setting, image.configs.get(resource, {}), settings.effective_broker_config(image)
    )
    values = parse_list(current or "")
    for value in parse_list(operation.value):
        if operation.operation == Operation.SUBTRACT:
            values = [each for each in values if each != value]
        elif value not in values:
            values.append(value)
    return ",".join(values)


def _validate(
    resource: ConfigResource,
    after: Mapping[str, str],
    names: Sequence[str],
    image: MetadataImage,
    settings: ControllerSettings,
) -> None:
    match resource.type:
        case ConfigResourceType.TOPIC:
            if not resource.name:
                raise ApiError(
                    ErrorCode.INVALID_REQUEST, "Default topic resources are not allowed."
                )
            if resource.name not in image.topics_by_name:
                raise ApiError(
                    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                    f"The topic '{resource.name}' does not exist.",
                )
            validate_topic_config(after)
        case ConfigResourceType.BROKER:
            _validate_broker(resource.name, after, names, image)
            _check_somebody_can_connect(resource.name, after, image, settings)
        case ConfigResourceType.GROUP:
            if not resource.name:
                raise ApiError(
                    ErrorCode.INVALID_REQUEST, "Default group resources are not allowed."
                )
            validate_group_config(after, settings.effective_broker_config(image))
        case ConfigResourceType.CLIENT_METRICS:
            validate_client_metrics_config(resource.name, after)


def _validate_broker(
    name: str, after: Mapping[str, str], names: Sequence[str], image: MetadataImage
) -> None:
    if name:
        if not name.isdecimal():
            raise ApiError(
                ErrorCode.INVALID_REQUEST, "Unable to parse broker name as a base 10 number."
            )
        if int(name) not in image.brokers:
            raise ApiError(
                ErrorCode.INVALID_REQUEST, f"Unexpected broker id, there is no broker {name}."
            )
    made = [each for each in names if each in after]
    _refuse_broker_settings(
        "Cannot update these configs dynamically",
        [_with_reason(each) for each in made if _is_fixed(each)],
    )
    _refuse_broker_settings(
        "These security configs can be dynamically updated only per-listener using the listener "
        "prefix",
        [each for each in made if needs_listener_prefix(each)],
    )
    if not name:
        _refuse_broker_settings(
            "Cannot update these configs at default cluster level, broker id must be specified",
            [each for each in made if (known := BROKER_SETTINGS.get(each)) and known.per_broker],
        )
    _validate_min_insync_replicas(name, after, names)
    try:
        # Names that nobody knows are kept as they are, as in Kafka.
        BROKER_SETTINGS.parse(
            {each: text for each, text in after.items() if each in BROKER_SETTINGS}
        )
    except ApiError as error:
        raise ApiError(ErrorCode.INVALID_REQUEST, error.message) from None


def _check_somebody_can_connect(
    name: str, after: Mapping[str, str], image: MetadataImage, settings: ControllerSettings
) -> None:
    of_all = image.cluster_configs() if name else after
    of_broker = after if name else image.broker_configs(settings.node_id)
    if keeps_everybody_out({**settings.broker_config, **of_all, **of_broker}):
        raise ApiError(
            ErrorCode.INVALID_REQUEST,
            "max.connections.per.ip can be 0 only if max.connections.per.ip.overrides is set.",
        )


def _is_fixed(name: str) -> bool:
    setting = BROKER_SETTINGS.get(name)
    return setting is not None and not setting.dynamic


def _with_reason(name: str) -> str:
    reason = BROKER_SETTINGS[name].reason
    return f"{name} ({reason})" if reason else name


def _refuse_broker_settings(problem: str, names: Sequence[str]) -> None:
    if names:
        raise ApiError(ErrorCode.INVALID_REQUEST, f"{problem}: {', '.join(names)}")


def _validate_min_insync_replicas(
    name: str, after: Mapping[str, str], names: Sequence[str]
) -> None:
    """The controller decides by it, so it is the same for all brokers and always there."""
    if MIN_INSYNC_REPLICAS not in names:
        return
    if name:
        raise ApiError(
            ErrorCode.INVALID_CONFIG,
            f"{MIN_INSYNC_REPLICAS} cannot be altered for one broker, only for all of them or for "
            "a topic.",
        )
    if MIN_INSYNC_REPLICAS not in after:
        raise ApiError(
            ErrorCode.INVALID_CONFIG,
            f"{MIN_INSYNC_REPLICAS} of all brokers cannot be removed, only altered.",
        )


def _type_name(resource_type: int) -> str:
    try:
        return ConfigResourceType(resource_type).name
    except ValueError:
        return str(resource_type)


def first_cluster_settings(image: MetadataImage, settings: ControllerSettings) -> list[Message]:
    """min.insync.replicas is kept for all brokers together, from the first start on."""
    if MIN_INSYNC_REPLICAS in image.cluster_configs():
        return []
    configured = settings.broker_config.get(MIN_INSYNC_REPLICAS)
    return [
        ConfigRecord(
            resource_type=ConfigResourceType.BROKER,
            resource_name="",
            name=MIN_INSYNC_REPLICAS,
            value=configured or BROKER_SETTINGS[MIN_INSYNC_REPLICAS].default,
        )
    ]


def one_min_insync_replicas(image: MetadataImage, settings: ControllerSettings) -> list[Message]:
    """What makes min.insync.replicas one value for all brokers, as eligible leader replicas need
    it: settings of single brokers, which older software may have left, go."""
    records = first_cluster_settings(image, settings)
    for resource, values in image.configs.items():
        if (
            resource.type == ConfigResourceType.BROKER
            and resource.name
            and MIN_INSYNC_REPLICAS in values
        ):
            records.append(
                ConfigRecord(
                    resource_type=resource.type,
                    resource_name=resource.name,
                    name=MIN_INSYNC_REPLICAS,
                    value=None,
                )
            )
    return records
