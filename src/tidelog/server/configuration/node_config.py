"""The configuration of a node, from a file, the environment and flags.

What settings there are, with types, defaults, limits and meaning, is said in one table: Kafka's
broker settings (`cluster.broker_config`) and those below that only a Tidelog node has. They come,
each over the one before, from the defaults, a file (`server.config_file`), the environment
(`TIDELOG_NUM_PARTITIONS` is `num.partitions`) and the command's flags (`--set num.partitions=3`). A
wrong value or an unknown name is an error that says which, and what is near; so is a value that
asks for what the node does not have. What has no effect here is taken, and named by
`without_effect`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tidelog.cluster.features import (
    DEFAULT_METADATA_VERSION,
    METADATA_VERSION,
    METADATA_VERSIONS,
    MV_LOG_DIRECTORIES,
    FeatureError,
    LevelRange,
    initial_levels,
    parse_metadata_version,
    supported_features,
)
from tidelog.cluster.settings.broker_config import (
    BROKER_SETTINGS,
    LIMITS_OF_ADDRESSES,
    LISTENER_PREFIX,
    keeps_everybody_out,
    listener_setting_base,
)
from tidelog.cluster.settings.config_schema import (
    ConfigType,
    Schema,
    Setting,
    Verdict,
    at_least,
    one_of,
    parse_list,
)
from tidelog.protocol.errors import ApiError
from tidelog.raft.settings import QuorumSettings
from tidelog.server.configuration.config_file import ConfigError, read_file, setting_text
from tidelog.server.configuration.node_roles import (
    BROKER,
    CONTROLLER,
    check_quorum,
    inter_broker_listener_name,
    names_itself,
    read_listeners,
    with_address_among_voters,
)
from tidelog.server.configuration.quorum_addresses import parse_addresses, parse_voters
from tidelog.server.configuration.typed_setting import (
    TypedSetting,
    boolean,
    decimal,
    integer,
    levels_by_name,
    numbers_by_name,
    optional_string,
    parsed_words,
    string,
    words,
)

ENVIRONMENT_PREFIX = "TIDELOG_"
_QUORUM_FETCH_WAIT_MS_MAX = 500

# Names that other Kafka versions, or people, use for a setting.
ALIASES = {"broker.id": "node.id", "rack": "broker.rack", "log.dir": "log.dirs"}

# What counts as set, because Kafka has no default for it.
NODE_DEFAULTS = {"node.id": "1", "log.dirs": "tidelog-data"}


def _own(
    name: str, kind: ConfigType, default: str | None, documentation: str, **more: Any
) -> Setting:
    return Setting(name, kind, default, documentation, dynamic=False, **more)


_OWN_SETTINGS = (
    _own(
        "cluster.id",
        ConfigType.STRING,
        None,
        "The cluster's id; without it the one on disk, or a new one at the first start.",
    ),
    _own(
        "initial.metadata.version",
        ConfigType.STRING,
        None,
        "The metadata.version that a new cluster starts with, as a name (4.1-IV1, 4.1) or a level "
        "(27); without it the newest. A data directory that exists keeps its level: tools such as "
        "kafka-features change it.",
    ),
    _own(
        "initial.feature.levels",
        ConfigType.LIST,
        "",
        "The levels of other features that a new cluster starts with, as NAME=LEVEL; those that "
        "are not named have the level of the metadata.version's time.",
    ),
    _own(
        "controller.quorum.voters.max",
        ConfigType.INT,
        "3",
        "With controller.quorum.auto.join.enable, a controller adds itself to the voters while "
        "there are fewer than this; otherwise it follows the quorum without a vote. An odd number.",
        validator=at_least(1),
    ),
    _own(
        "local.reads.enable",
        ConfigType.BOOLEAN,
        "true",
        "Spark tasks on this machine that run as the node's user, or as root, read records from the"
        " files of the node, which hands them over, and not over TCP.",
    ),
    _own(
        "socket.unread.timeout.ms",
        ConfigType.LONG,
        "60000",
        "A connection whose client does not read its answers for this long is closed, and so is "
        "one whose client has ended its side of the stream and on which nothing moves for this "
        "long.",
        validator=at_least(1),
    ),
    _own(
        "min.incremental.fetch.session.eviction.ms",
        ConfigType.LONG,
        "120000",
        "A fetch session that is this old, or unused for as long, may make room for another.",
        validator=at_least(0),
    ),
    _own(
        "logging.level",
        ConfigType.STRING,
        "info",
        "The least important lines that are written to standard error.",
        validator=one_of("debug", "info", "warning", "error", "off"),
    ),
    _own(
        "logging.format",
        ConfigType.STRING,
        "text",
        "The form of those lines.",
        validator=one_of("text", "json"),
    ),
)

SETTINGS = Schema("broker", (*BROKER_SETTINGS, *_OWN_SETTINGS), BROKER_SETTINGS.get)
"""Every setting of a node by name, for documentation and checks."""


class NodeConfig:
    """A node's settings as typed attributes: `num.partitions` is `config.num_partitions`.

    Immutable. `explicit` holds, in text form, what was set; the rest has its default.
    """

    node_id = integer("node.id")
    cluster_id = optional_string("cluster.id")
    broker_rack = optional_string("broker.rack")
    initial_metadata_version = optional_string("initial.metadata.version")
    initial_feature_levels = levels_by_name("initial.feature.levels")
    unstable_feature_versions_enable = boolean("unstable.feature.versions.enable")
    log_dirs = words("log.dirs")
    durability = string("durability")
    logging_level = string("logging.level")
    logging_format = string("logging.format")

    process_roles = words("process.roles")
    controller_listener_names = words("controller.listener.names")
    controller_quorum_voters = parsed_words("controller.quorum.voters", parse_voters)
    controller_quorum_bootstrap_servers = parsed_words(
        "controller.quorum.bootstrap.servers", parse_addresses
    )
    controller_quorum_auto_join_enable = boolean("controller.quorum.auto.join.enable")
    controller_quorum_voters_max = integer("controller.quorum.voters.max")
    controller_quorum_election_timeout_ms = integer("controller.quorum.election.timeout.ms")
    controller_quorum_fetch_timeout_ms = integer("controller.quorum.fetch.timeout.ms")
    controller_quorum_election_backoff_max_ms = integer("controller.quorum.election.backoff.max.ms")
    controller_quorum_request_timeout_ms = integer("controller.quorum.request.timeout.ms")
    controller_quorum_retry_backoff_ms = integer("controller.quorum.retry.backoff.ms")
    controller_quorum_fetch_max_bytes = integer("controller.quorum.fetch.max.bytes")
    controller_quorum_fetch_snapshot_max_bytes = integer(
        "controller.quorum.fetch.snapshot.max.bytes"
    )
    broker_heartbeat_interval_ms = integer("broker.heartbeat.interval.ms")
    broker_session_timeout_ms = integer("broker.session.timeout.ms")
    initial_broker_registration_timeout_ms = integer("initial.broker.registration.timeout.ms")
    controlled_shutdown_enable = boolean("controlled.shutdown.enable")
    auto_leader_rebalance_enable = boolean("auto.leader.rebalance.enable")
    leader_imbalance_check_interval_seconds = integer("leader.imbalance.check.interval.seconds")
    unclean_leader_election_interval_ms = integer("unclean.leader.election.interval.ms")

    listeners = words("listeners")
    local_reads_enable = boolean("local.reads.enable")
    max_connections = integer("max.connections")
    max_connection_creation_rate = integer("max.connection.creation.rate")
    max_connections_per_ip = integer("max.connections.per.ip")
    max_connections_per_ip_overrides = numbers_by_name("max.connections.per.ip.overrides")
    connections_max_idle_ms = integer("connections.max.idle.ms")
    socket_unread_timeout_ms = integer("socket.unread.timeout.ms")
    socket_request_max_bytes = integer("socket.request.max.bytes")
    socket_listen_backlog_size = integer("socket.listen.backlog.size")
    socket_send_buffer_bytes = integer("socket.send.buffer.bytes")
    socket_receive_buffer_bytes = integer("socket.receive.buffer.bytes")
    queued_max_request_bytes = integer("queued.max.request.bytes")

    num_recovery_threads_per_data_dir = integer("num.recovery.threads.per.data.dir")
    log_retention_check_interval_ms = integer("log.retention.check.interval.ms")
    log_flush_offset_checkpoint_interval_ms = integer("log.flush.offset.checkpoint.interval.ms")
    log_cleaner_enable = boolean("log.cleaner.enable")
    log_cleaner_dedupe_buffer_size = integer("log.cleaner.dedupe.buffer.size")
    log_cleaner_io_max_bytes_per_second = decimal("log.cleaner.io.max.bytes.per.second")
    log_cleaner_backoff_ms = integer("log.cleaner.backoff.ms")

    auto_create_topics_enable = boolean("auto.create.topics.enable")
    delete_topic_enable = boolean("delete.topic.enable")
    num_partitions = integer("num.partitions")
    default_replication_factor = integer("default.replication.factor")
    max_request_partition_size_limit = integer("max.request.partition.size.limit")

    replica_lag_time_max_ms = integer("replica.lag.time.max.ms")
    replica_fetch_wait_max_ms = integer("replica.fetch.wait.max.ms")
    replica_fetch_min_bytes = integer("replica.fetch.min.bytes")
    replica_fetch_max_bytes = integer("replica.fetch.max.bytes")
    replica_fetch_response_max_bytes = integer("replica.fetch.response.max.bytes")
    replica_fetch_backoff_ms = integer("replica.fetch.backoff.ms")
    replica_socket_timeout_ms = integer("replica.socket.timeout.ms")
    replica_selector_class = optional_string("replica.selector.class")
    leader_replication_throttled_rate = integer("leader.replication.throttled.rate")
    follower_replication_throttled_rate = integer("follower.replication.throttled.rate")
    replication_quota_window_num = integer("replication.quota.window.num")
    replication_quota_window_size_seconds = integer("replication.quota.window.size.seconds")
    replica_alter_log_dirs_io_max_bytes_per_second = integer(
        "replica.alter.log.dirs.io.max.bytes.per.second"
    )
    alter_log_dirs_replication_quota_window_num = integer(
        "alter.log.dirs.replication.quota.window.num"
    )
    alter_log_dirs_replication_quota_window_size_seconds = integer(
        "alter.log.dirs.replication.quota.window.size.seconds"
    )

    fetch_max_bytes = integer("fetch.max.bytes")
    telemetry_max_bytes = integer("telemetry.max.bytes")
    max_incremental_fetch_session_cache_slots = integer("max.incremental.fetch.session.cache.slots")
    min_incremental_fetch_session_eviction_ms = integer("min.incremental.fetch.session.eviction.ms")
    producer_id_expiration_check_interval_ms = integer("producer.id.expiration.check.interval.ms")

    group_initial_rebalance_delay_ms = integer("group.initial.rebalance.delay.ms")
    group_max_size = integer("group.max.size")
    group_min_session_timeout_ms = integer("group.min.session.timeout.ms")
    group_max_session_timeout_ms = integer("group.max.session.timeout.ms")
    group_coordinator_rebalance_protocols = words("group.coordinator.rebalance.protocols")
    group_consumer_assignors = words("group.consumer.assignors")
    group_consumer_migration_policy = string("group.consumer.migration.policy")
    group_consumer_session_timeout_ms = integer("group.consumer.session.timeout.ms")
    group_consumer_min_session_timeout_ms = integer("group.consumer.min.session.timeout.ms")
    group_consumer_max_session_timeout_ms = integer("group.consumer.max.session.timeout.ms")
    group_consumer_heartbeat_interval_ms = integer("group.consumer.heartbeat.interval.ms")
    group_consumer_min_heartbeat_interval_ms = integer("group.consumer.min.heartbeat.interval.ms")
    group_consumer_max_heartbeat_interval_ms = integer("group.consumer.max.heartbeat.interval.ms")
    group_consumer_assignment_interval_ms = integer("group.consumer.assignment.interval.ms")
    group_consumer_min_assignment_interval_ms = integer("group.consumer.min.assignment.interval.ms")
    group_consumer_max_assignment_interval_ms = integer("group.consumer.max.assignment.interval.ms")
    group_consumer_max_size = integer("group.consumer.max.size")
    offset_metadata_max_bytes = integer("offset.metadata.max.bytes")
    offsets_topic_num_partitions = integer("offsets.topic.num.partitions")
    offsets_topic_replication_factor = integer("offsets.topic.replication.factor")
    offsets_topic_segment_bytes = integer("offsets.topic.segment.bytes")
    offsets_retention_minutes = integer("offsets.retention.minutes")
    offsets_retention_check_interval_ms = integer("offsets.retention.check.interval.ms")
    offsets_commit_timeout_ms = integer("offsets.commit.timeout.ms")

    transaction_max_timeout_ms = integer("transaction.max.timeout.ms")
    transactional_id_expiration_ms = integer("transactional.id.expiration.ms")
    transaction_abort_timed_out_transaction_cleanup_interval_ms = integer(
        "transaction.abort.timed.out.transaction.cleanup.interval.ms"
    )
    transaction_remove_expired_transaction_cleanup_interval_ms = integer(
        "transaction.remove.expired.transaction.cleanup.interval.ms"
    )
    transaction_partition_verification_enable = boolean("transaction.partition.verification.enable")
    transaction_state_log_num_partitions = integer("transaction.state.log.num.partitions")
    transaction_state_log_replication_factor = integer("transaction.state.log.replication.factor")
    transaction_state_log_min_isr = integer("transaction.state.log.min.isr")
    transaction_state_log_segment_bytes = integer("transaction.state.log.segment.bytes")

    quota_window_num = integer("quota.window.num")
    quota_window_size_seconds = integer("quota.window.size.seconds")
    controller_quota_window_num = integer("controller.quota.window.num")
    controller_quota_window_size_seconds = integer("controller.quota.window.size.seconds")
    metadata_log_max_record_bytes_between_snapshots = integer(
        "metadata.log.max.record.bytes.between.snapshots"
    )
    metadata_log_max_snapshot_interval_ms = integer("metadata.log.max.snapshot.interval.ms")

    def __init__(self, explicit: Mapping[str, str] | None = None) -> None:
        self.explicit: dict[str, str] = {**NODE_DEFAULTS, **_with_one_name(explicit or {})}
        values = self._parse()
        for declared in _DECLARED:
            try:
                self.__dict__[declared.attribute] = declared.convert(values.get(declared.name))
            except ValueError as error:
                raise ConfigError(f"{declared.name}: {error}") from None
        self.parsed_listeners = read_listeners(
            {"listeners": ",".join(self.listeners), **self.explicit}, self.process_roles
        )
        self.inter_broker_listener_name = inter_broker_listener_name(
            self.parsed_listeners, self.explicit
        )
        check_quorum(self)
        voters = {voter.node_id: voter for voter in self.controller_quorum_voters}
        self.parsed_listeners = with_address_among_voters(
            self.parsed_listeners, self.quorum_listener_name, voters.get(self.node_id)
        )
        # By the listener's name in lower case, as in the names of such settings.
        self.listener_max_connections = _of_listeners("max.connections", values)
        self.listener_max_connection_creation_rate = _of_listeners(
            "max.connection.creation.rate", values
        )
        if keeps_everybody_out(self.explicit):
            raise ConfigError("max.connections.per.ip: 0 needs max.connections.per.ip.overrides")
        if not self.log_dirs:
            raise ConfigError("log.dirs: none; name a folder for the data")
        self.initial_levels: dict[str, int] = self._initial_levels()
        self.check_directories(self.initial_levels[METADATA_VERSION])

    def _parse(self) -> dict[str, Any]:
        """The typed values of what was set and of the declared settings' defaults."""
        try:
            values = SETTINGS.parse(self.explicit)
            for declared in _DECLARED:
                setting = SETTINGS[declared.name]
                if declared.name not in values and setting.default is not None:
                    values[declared.name] = setting.parse(setting.default)
        except ApiError as error:
            raise ConfigError(error.message) from None
        return values

    @property
    def is_broker(self) -> bool:
        return BROKER in self.process_roles

    @property
    def is_controller(self) -> bool:
        return CONTROLLER in self.process_roles

    @property
    def quorum_listener_name(self) -> str:
        """The name of the listener over which nodes reach the quorum and its controller."""
        names = self.controller_listener_names
        if not names:
            return self.inter_broker_listener_name
        own = (listener.name for listener in self.parsed_listeners)
        return next((name for name in own if name.upper() == names[0].upper()), names[0])

    @property
    def quorum_settings(self) -> QuorumSettings:
        return QuorumSettings(
            election_timeout_ms=self.controller_quorum_election_timeout_ms,
            fetch_timeout_ms=self.controller_quorum_fetch_timeout_ms,
            election_backoff_max_ms=self.controller_quorum_election_backoff_max_ms,
            request_timeout_ms=self.controller_quorum_request_timeout_ms,
            retry_backoff_ms=self.controller_quorum_retry_backoff_ms,
            # A fetch that waits must come back in time, or it counts as silence.
            fetch_max_wait_ms=min(
                _QUORUM_FETCH_WAIT_MS_MAX, self.controller_quorum_fetch_timeout_ms // 4
            ),
            fetch_max_bytes=self.controller_quorum_fetch_max_bytes,
            fetch_snapshot_max_bytes=self.controller_quorum_fetch_snapshot_max_bytes,
        )

    @property
    def starts_new_cluster(self) -> bool:
        """Whether this node, on an empty data directory, is the first voter of a new quorum.

        Not when its settings send it to other nodes: then it waits for them. A list of bootstrap
        servers that only has the node itself, as in Kafka's own server.properties, sends it to
        nobody.
        """
        return (
            self.is_controller
            and not self.controller_quorum_voters
            and all(
                names_itself(address, self.parsed_listeners)
                for address in self.controller_quorum_bootstrap_servers
            )
        )

    @property
    def supported_features(self) -> Mapping[str, LevelRange]:
        return supported_features(unstable=self.unstable_feature_versions_enable)

    def _initial_levels(self) -> dict[str, int]:
        """The finalized features of a new cluster."""
        name, metadata_version = "initial.metadata.version", DEFAULT_METADATA_VERSION
        try:
            if self.initial_metadata_version is not None:
                metadata_version = parse_metadata_version(
                    self.initial_metadata_version, self.supported_features
                )
            name = "initial.feature.levels"
            return initial_levels(metadata_version, self.initial_feature_levels)
        except FeatureError as error:
            raise ConfigError(f"{name}: {error}") from None

    def check_directories(self, metadata_version: int) -> None:
        """A cluster whose level does not know log directories can have one of them only."""
        if len(self.log_dirs) > 1 and metadata_version < MV_LOG_DIRECTORIES:
            present, needed = (
                METADATA_VERSIONS[level][0] for level in (metadata_version, MV_LOG_DIRECTORIES)
            )
            raise ConfigError(
                "log.dirs: Multiple log directories (aka JBOD) are not supported in "
                f"metadata.version {present}. Need {needed} or higher."
            )

    @property
    def without_effect(self) -> list[str]:
        """The names of what was set and changes nothing here."""
        listeners = tuple(
            f"{LISTENER_PREFIX}{listener.name.lower()}." for listener in self.parsed_listeners
        )
        return sorted(
            name
            for name, text in self.explicit.items()
            if not _has_effect(SETTINGS[name], text)
            or (name.startswith(LISTENER_PREFIX) and not name.startswith(listeners))
        )

    @classmethod
    def of(cls, **values: object) -> NodeConfig:
        """From attribute names: `NodeConfig.of(num_partitions=3, log_dirs=path)`."""
        return cls({name.replace("_", "."): setting_text(value) for name, value in values.items()})

    @classmethod
    def load(
        cls,
        *,
        file: Path | None = None,
        environment: Mapping[str, str] | None = None,
        flags: Sequence[str] = (),
    ) -> NodeConfig:
        """From a file, `TIDELOG_*` variables and `name=value` flags, later ones winning."""
        return cls(merge_settings(file=file, environment=environment, flags=flags))

    def changed(self, changes: Mapping[str, str]) -> NodeConfig:
        """These settings with others in their place, as far as they can be changed."""
        live = {name: text for name, text in changes.items() if _can_be_changed(name, text)}
        if keeps_everybody_out({**self.explicit, **live}):
            # They were allowed beside other settings of the operator than there are now.
            live = {name: text for name, text in live.items() if name not in LIMITS_OF_ADDRESSES}
        return NodeConfig({**self.explicit, **live}) if live else self


def merge_settings(
    *,
    file: Path | None = None,
    environment: Mapping[str, str] | None = None,
    flags: Sequence[str] = (),
) -> dict[str, str]:
    """What is set in a file, in `TIDELOG_*` variables and in flags, later ones winning."""
    explicit: dict[str, str] = {}
    for source in (
        read_file(file) if file is not None else {},
        read_environment(environment or {}),
        read_flags(flags),
    ):
        named = _with_one_name(source)
        if "listeners" in named and "listeners" in explicit:
            # Another address must not take away the security that was asked for.
            read_listeners(explicit, parse_list(explicit.get("process.roles", "")))
        explicit.update(named)
    return explicit


def _with_one_name(settings: Mapping[str, str]) -> dict[str, str]:
    """The same settings, each under the name that the node knows it by."""
    named: dict[str, str] = {}
    for name, text in settings.items():
        known = ALIASES.get(name, name)
        if known != name and known in settings:
            if known == "node.id" and text.strip() != settings[known].strip():
                raise ConfigError(f"{name} is {text} and {known} is {settings[known]}; set one")
            continue
        named[known] = text
    return named


def _of_listeners(setting: str, values: Mapping[str, Any]) -> dict[str, int]:
    """What single listeners have of a setting, by their names."""
    return {
        name.removeprefix(LISTENER_PREFIX).removesuffix(f".{setting}"): value
        for name, value in values.items()
        if name.startswith(LISTENER_PREFIX) and listener_setting_base(name) == setting
    }


def _has_effect(setting: Setting, text: str) -> bool:
    match setting.verdict:
        case Verdict.CONSTANT:
            return text.strip() == setting.default
        case Verdict.MEANINGLESS:
            return False
    return True


def _can_be_changed(name: str, text: str) -> bool:
    setting = SETTINGS.get(name)
    if setting is None or not setting.dynamic:
        return False
    try:
        setting.parse(text)
    except ApiError:
        return False
    return True


def read_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """The settings among environment variables."""
    return {
        name[len(ENVIRONMENT_PREFIX) :].lower().replace("_", "."): value
        for name, value in environment.items()
        if name.startswith(ENVIRONMENT_PREFIX)
    }


def read_flags(flags: Sequence[str]) -> dict[str, str]:
    """The settings of `name=value` flags."""
    settings = {}
    for flag in flags:
        name, mark, value = flag.partition("=")
        if not mark:
            raise ConfigError(f"--set {flag}: is not name=value")
        settings[name.strip()] = value.strip()
    return settings


_DECLARED: tuple[TypedSetting[Any], ...] = tuple(
    declared for declared in vars(NodeConfig).values() if isinstance(declared, TypedSetting)
)
