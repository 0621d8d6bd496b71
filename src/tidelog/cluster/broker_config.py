"""The settings of brokers, under Kafka's names.

The table is for those who describe and check them (DescribeConfigs, AlterConfigs, the node's
configuration file); the node's own configuration object holds the values. Dynamic are those that
stand in for topic settings, because a change of them reaches the logs; the others need a restart.
"""

from __future__ import annotations

from collections.abc import Iterator

from tidelog.cluster.config_schema import (
    INT_MAX,
    ConfigType,
    Importance,
    Schema,
    Setting,
    at_least,
)
from tidelog.cluster.topic_config import TOPIC_SETTINGS

BOOLEAN, STRING, INT, SHORT = (
    ConfigType.BOOLEAN,
    ConfigType.STRING,
    ConfigType.INT,
    ConfigType.SHORT,
)
LONG, LIST, PASSWORD = (
    ConfigType.LONG,
    ConfigType.LIST,
    ConfigType.PASSWORD,
)
LOW, MEDIUM, HIGH = Importance.LOW, Importance.MEDIUM, Importance.HIGH

# Synonyms of topic settings whose type or default is not that of the topic setting.
_OTHER_DEFAULTS: dict[str, tuple[ConfigType, str | None]] = {
    "log.flush.interval.ms": (LONG, None),
    "log.retention.hours": (INT, "168"),
    "log.retention.minutes": (INT, None),
    "log.retention.ms": (LONG, None),
    "log.roll.hours": (INT, "168"),
    "log.roll.jitter.hours": (INT, "0"),
    "log.roll.jitter.ms": (LONG, None),
    "log.roll.ms": (LONG, None),
}


def _topic_defaults() -> Iterator[Setting]:
    for setting in TOPIC_SETTINGS:
        for synonym in setting.synonyms:
            kind, default = _OTHER_DEFAULTS.get(synonym.name, (setting.type, setting.default))
            unit = "" if synonym.factor == 1 else f", counted in {synonym.factor} ms"
            yield Setting(
                synonym.name,
                kind,
                default,
                f"The default of the topic setting {setting.name}{unit}. {setting.documentation}",
                setting.validator if synonym.factor == 1 else None,
                HIGH,
            )


def _fixed(
    name: str,
    kind: ConfigType,
    default: str | None,
    documentation: str,
    minimum: int | None = None,
    importance: Importance = MEDIUM,
) -> Setting:
    validator = None if minimum is None else at_least(minimum)
    return Setting(name, kind, default, documentation, validator, importance, dynamic=False)


_NODE = (
    _fixed("node.id", INT, None, "The number of this node in the cluster.", 0, HIGH),
    _fixed("broker.id", INT, "-1", "An older name of node.id.", None, HIGH),
    _fixed("broker.rack", STRING, None, "Where this node stands; replicas go to different racks."),
    _fixed("process.roles", LIST, "broker,controller", "What this node does.", None, HIGH),
    _fixed(
        "controller.quorum.voters",
        LIST,
        "",
        "The voters of the controller quorum, as id@host:port.",
        None,
        HIGH,
    ),
    _fixed(
        "controller.listener.names", STRING, None, "The listeners of the controller.", None, HIGH
    ),
    _fixed("log.dir", STRING, "/tmp/kafka-logs", "Where the data is, if log.dirs is not set."),
    _fixed("log.dirs", STRING, None, "The directories that hold the data.", None, HIGH),
    _fixed("listeners", STRING, "PLAINTEXT://:9092", "Where the node listens.", None, HIGH),
    _fixed("advertised.listeners", STRING, None, "Where clients are told to connect.", None, HIGH),
    _fixed(
        "listener.security.protocol.map",
        STRING,
        "PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT,SASL_SSL:SASL_SSL",
        "The security protocol of each listener name.",
        None,
        LOW,
    ),
    _fixed("inter.broker.listener.name", STRING, None, "The listener that other brokers use."),
    _fixed(
        "security.inter.broker.protocol", STRING, "PLAINTEXT", "How brokers talk to each other."
    ),
    _fixed("sasl.enabled.mechanisms", LIST, "GSSAPI", "The SASL mechanisms of this broker."),
    _fixed("ssl.keystore.password", PASSWORD, None, "The password of the key store.", None, HIGH),
)

_CONNECTIONS = (
    _fixed("connections.max.idle.ms", LONG, "600000", "When an idle connection is closed.", None),
    _fixed("max.connections", INT, str(INT_MAX), "How many connections there may be.", 0),
    _fixed(
        "max.connections.per.ip",
        INT,
        str(INT_MAX),
        "How many connections may come from one address.",
        0,
    ),
    _fixed(
        "max.connections.per.ip.overrides",
        STRING,
        "",
        "max.connections.per.ip of single addresses.",
    ),
    _fixed("socket.request.max.bytes", INT, str(100 << 20), "The largest request.", 1, HIGH),
    _fixed("socket.send.buffer.bytes", INT, "102400", "SO_SNDBUF; -1 leaves it.", None, HIGH),
    _fixed("socket.receive.buffer.bytes", INT, "102400", "SO_RCVBUF; -1 leaves it.", None, HIGH),
    _fixed("socket.listen.backlog.size", INT, "50", "How many connections wait for accept.", 1),
    _fixed(
        "queued.max.request.bytes",
        LONG,
        "-1",
        "How many bytes of requests may be in work before reading stops; -1 is no limit.",
    ),
    _fixed("fetch.max.bytes", INT, str(55 << 20), "The most that one fetch answers.", 1024),
    _fixed(
        "max.incremental.fetch.session.cache.slots",
        INT,
        "1000",
        "How many incremental fetch sessions are kept.",
        0,
    ),
    _fixed(
        "max.request.partition.size.limit",
        INT,
        "2000",
        "How many partitions one DescribeTopicPartitions answers.",
        1,
    ),
    _fixed("request.timeout.ms", INT, "30000", "How long the broker waits for others.", None, HIGH),
    _fixed("num.network.threads", INT, "1", "One event loop does all of a node's network.", 1),
    _fixed("num.io.threads", INT, "1", "One event loop does all of a node's requests.", 1),
    _fixed("background.threads", INT, "10", "Threads for work in the background.", 1, HIGH),
)

_TOPICS = (
    _fixed("num.partitions", INT, "1", "The partition count of a topic that names none.", 1),
    _fixed(
        "default.replication.factor",
        INT,
        "1",
        "The replication factor of a topic that names none.",
    ),
    _fixed(
        "auto.create.topics.enable",
        BOOLEAN,
        "true",
        "Whether asking for a topic that is not there creates it.",
        None,
        HIGH,
    ),
    _fixed("delete.topic.enable", BOOLEAN, "true", "Whether topics can be deleted.", None, HIGH),
    _fixed(
        "log.retention.check.interval.ms",
        LONG,
        "300000",
        "How often logs are checked for segments that have to go.",
        1,
    ),
    _fixed("log.cleaner.enable", BOOLEAN, "true", "Whether compacted topics are compacted."),
    _fixed("log.cleaner.threads", INT, "1", "How many cleaners work at once.", 0),
    _fixed("log.cleaner.dedupe.buffer.size", LONG, str(128 << 20), "The cleaner's memory."),
    _fixed("log.cleaner.io.buffer.size", INT, str(512 << 10), "The cleaner's read buffer.", 0),
    _fixed(
        "log.cleaner.io.max.bytes.per.second",
        ConfigType.DOUBLE,
        "1.7976931348623157E308",
        "What the cleaner reads and writes in a second at most.",
    ),
    _fixed("log.cleaner.backoff.ms", LONG, "15000", "How long an idle cleaner sleeps.", 0),
    _fixed(
        "log.flush.offset.checkpoint.interval.ms",
        INT,
        "60000",
        "How often recovery points are written.",
        0,
        HIGH,
    ),
    _fixed(
        "log.flush.start.offset.checkpoint.interval.ms",
        INT,
        "60000",
        "How often log start offsets are written.",
        0,
        HIGH,
    ),
    _fixed(
        "num.recovery.threads.per.data.dir",
        INT,
        "16",
        "Threads that recover and sync logs.",
        1,
        HIGH,
    ),
    _fixed(
        "producer.id.expiration.ms",
        INT,
        "86400000",
        "How long a partition remembers an idle producer.",
        1,
        LOW,
    ),
    _fixed(
        "producer.id.expiration.check.interval.ms", INT, "600000", "How often that is checked.", 1
    ),
)

_GROUPS = (
    _fixed("group.min.session.timeout.ms", INT, "6000", "The shortest session timeout."),
    _fixed("group.max.session.timeout.ms", INT, "1800000", "The longest session timeout."),
    _fixed(
        "group.initial.rebalance.delay.ms",
        INT,
        "3000",
        "How long a new group waits for more members.",
    ),
    _fixed("group.max.size", INT, str(INT_MAX), "The most members of a classic group.", 1),
    _fixed("group.consumer.session.timeout.ms", INT, "45000", "KIP-848: session timeout.", 1),
    _fixed("group.consumer.min.session.timeout.ms", INT, "45000", "KIP-848: its least value.", 1),
    _fixed("group.consumer.max.session.timeout.ms", INT, "60000", "KIP-848: its most.", 1),
    _fixed("group.consumer.heartbeat.interval.ms", INT, "5000", "KIP-848: heartbeat interval.", 1),
    _fixed("group.consumer.min.heartbeat.interval.ms", INT, "5000", "KIP-848: its least value.", 1),
    _fixed("group.consumer.max.heartbeat.interval.ms", INT, "15000", "KIP-848: its most.", 1),
    Setting(
        "group.consumer.assignment.interval.ms",
        INT,
        "1000",
        "KIP-848: how long a group keeps its assignment at least before it is computed anew.",
        at_least(0),
    ),
    _fixed("group.consumer.min.assignment.interval.ms", INT, "0", "KIP-848: its least value.", 0),
    _fixed("group.consumer.max.assignment.interval.ms", INT, "15000", "KIP-848: its most.", 0),
    _fixed("group.consumer.max.size", INT, str(INT_MAX), "KIP-848: the most members.", 1),
    _fixed("group.consumer.assignors", LIST, "uniform,range", "KIP-848: assignors of the server."),
    _fixed(
        "group.consumer.migration.policy",
        STRING,
        "bidirectional",
        "KIP-848: whether live groups may change their protocol.",
    ),
    _fixed(
        "group.coordinator.rebalance.protocols",
        LIST,
        "classic,consumer",
        "The group protocols that are served.",
    ),
    _fixed(
        "offset.metadata.max.bytes", INT, "4096", "The longest metadata of a commit.", None, HIGH
    ),
    _fixed(
        "offsets.commit.timeout.ms", INT, "5000", "How long a commit may wait to commit.", 1, HIGH
    ),
    _fixed(
        "offsets.load.buffer.size", INT, str(5 << 20), "How much is read at once on load.", 1, HIGH
    ),
    _fixed(
        "offsets.retention.minutes",
        INT,
        "10080",
        "How long committed offsets outlive their group.",
        1,
        HIGH,
    ),
    _fixed(
        "offsets.retention.check.interval.ms",
        LONG,
        "600000",
        "How often that is checked.",
        1,
        HIGH,
    ),
    _fixed("offsets.topic.num.partitions", INT, "50", "Partitions of __consumer_offsets.", 1, HIGH),
    _fixed(
        "offsets.topic.replication.factor",
        SHORT,
        "3",
        "Replicas of __consumer_offsets (as many as there are brokers at most).",
        1,
        HIGH,
    ),
    _fixed(
        "offsets.topic.segment.bytes",
        INT,
        str(100 << 20),
        "Segment size of __consumer_offsets.",
        1,
        HIGH,
    ),
    _fixed(
        "offsets.topic.compression.codec",
        INT,
        "0",
        "How __consumer_offsets is compressed; 0 is not at all.",
        None,
        HIGH,
    ),
)

_TRANSACTIONS = (
    _fixed(
        "transaction.max.timeout.ms", INT, "900000", "The longest transaction timeout.", 1, HIGH
    ),
    _fixed(
        "transactional.id.expiration.ms",
        INT,
        "604800000",
        "How long an idle transactional id is remembered.",
        1,
        HIGH,
    ),
    _fixed(
        "transaction.abort.timed.out.transaction.cleanup.interval.ms",
        INT,
        "10000",
        "How often transactions are checked for their timeout.",
        1,
        LOW,
    ),
    _fixed(
        "transaction.remove.expired.transaction.cleanup.interval.ms",
        INT,
        "3600000",
        "How often transactional ids are checked for expiry.",
        1,
        LOW,
    ),
    _fixed(
        "transaction.state.log.num.partitions",
        INT,
        "50",
        "Partitions of __transaction_state.",
        1,
        HIGH,
    ),
    _fixed(
        "transaction.state.log.replication.factor",
        SHORT,
        "3",
        "Replicas of __transaction_state (as many as there are brokers at most).",
        1,
        HIGH,
    ),
    _fixed(
        "transaction.state.log.min.isr",
        INT,
        "2",
        "In-sync replicas that __transaction_state needs (no more than it has).",
        1,
        HIGH,
    ),
    _fixed(
        "transaction.state.log.segment.bytes",
        INT,
        str(100 << 20),
        "Segment size of __transaction_state.",
        1,
        HIGH,
    ),
    _fixed(
        "transaction.partition.verification.enable",
        BOOLEAN,
        "true",
        "Whether appends are checked to belong to an open transaction.",
        None,
        LOW,
    ),
)

_REPLICATION_AND_QUOTAS = (
    _fixed(
        "replica.lag.time.max.ms",
        LONG,
        "30000",
        "After how long a follower that has not caught up is out of sync.",
        None,
        HIGH,
    ),
    _fixed("replica.fetch.max.bytes", INT, str(1 << 20), "A follower's fetch per partition.", 0),
    _fixed("replica.fetch.min.bytes", INT, "1", "A follower's least fetch.", None, HIGH),
    _fixed("replica.fetch.wait.max.ms", INT, "500", "A follower's longest wait.", None, HIGH),
    _fixed("replica.fetch.response.max.bytes", INT, str(10 << 20), "A follower's fetch.", 0),
    _fixed("num.replica.fetchers", INT, "1", "Fetchers per leader.", None, HIGH),
    _fixed(
        "auto.leader.rebalance.enable",
        BOOLEAN,
        "true",
        "Whether leadership goes back to preferred leaders.",
        None,
        HIGH,
    ),
    _fixed("controlled.shutdown.enable", BOOLEAN, "true", "Whether leaders move before a stop."),
    _fixed("broker.heartbeat.interval.ms", INT, "2000", "How often brokers send heartbeats."),
    _fixed("broker.session.timeout.ms", INT, "9000", "When a silent broker is fenced."),
    _fixed("quota.window.num", INT, "11", "Windows over which rates are measured.", 1, LOW),
    _fixed("quota.window.size.seconds", INT, "1", "The length of such a window.", 1, LOW),
    _fixed(
        "metadata.log.max.record.bytes.between.snapshots",
        LONG,
        str(20 << 20),
        "How many bytes of metadata records lie between two snapshots.",
        1,
        HIGH,
    ),
    _fixed(
        "metadata.log.max.snapshot.interval.ms",
        LONG,
        "3600000",
        "After which time there is a snapshot anyway; 0 is never.",
        0,
        HIGH,
    ),
    _fixed("authorizer.class.name", STRING, "", "Who decides what a principal may do.", None, LOW),
    _fixed("metrics.recording.level", STRING, "INFO", "How much is measured.", None, LOW),
)


BROKER_SETTINGS = Schema(
    "broker",
    sorted(
        (
            *_topic_defaults(),
            *_NODE,
            *_CONNECTIONS,
            *_TOPICS,
            *_GROUPS,
            *_TRANSACTIONS,
            *_REPLICATION_AND_QUOTAS,
        ),
        key=lambda setting: setting.name,
    ),
)
