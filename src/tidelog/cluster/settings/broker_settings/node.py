"""What a node is: its identity, its part in the quorum, its directories, metadata and metrics."""

from __future__ import annotations

from tidelog.cluster.settings.broker_settings.rows import (
    BOOLEAN,
    CLASS,
    INT,
    LIST,
    LONG,
    NO_JAVA,
    STRING,
    meaningless,
    refused,
    used,
)

_NO_LINGER = "records that come together are written together, and none waits for another"
_OWN_DEADLINES = "requests between nodes have deadlines of their own"
_NO_EVENT_LOG = "the controller does not time its events"
_TOLD_AT_ONCE = "the controller is told of a failed directory at once"
_NO_IDLE_RECORDS = "an idle controller writes nothing"
_METADATA_PLACE = "the metadata log lies in the first of log.dirs"
_NO_CORDON = "directories cannot be cordoned"
_METADATA_SIZE = "snapshots keep the metadata log small by themselves"
_NO_WAITING = "a start waits for nothing but its own recovery"
_ONLY_STABLE = "only finished versions are built in"
_NO_PROVIDERS = "values are taken as they are written"
_NO_JAVA_CLASSES = "Java classes cannot be loaded"


def _roles(roles: list[str]) -> str | None:
    unknown = [role for role in roles if role not in ("broker", "controller")]
    if unknown:
        return f"{unknown[0]} is no role; the roles are broker and controller"
    return None if roles else "A node needs a role: broker, controller or both"


NODE = (
    used("node.id", INT, None, "The number of this node in the cluster; 1 unless set.", minimum=0),
    used("broker.id", INT, "-1", "An older name of node.id."),
    used("broker.rack", STRING, None, "Where this node stands; replicas go to different racks."),
    used(
        "process.roles",
        LIST,
        "broker,controller",
        "What this node does: broker, controller or both.",
        validator=_roles,
    ),
    used(
        "controller.listener.names",
        LIST,
        None,
        "The listeners that serve the controller and the quorum and nothing else; without it every "
        "listener serves the controller too. A node that is only a broker names the controllers' "
        "listener here, which it does not have itself.",
    ),
    used(
        "controller.quorum.voters",
        LIST,
        "",
        "The voters of a quorum whose members are fixed, as id@host:port; the same on all nodes.",
    ),
    used(
        "controller.quorum.bootstrap.servers",
        LIST,
        "",
        "Where nodes of the quorum are found, as host:port; its voters are in its own log.",
    ),
    used(
        "controller.quorum.auto.join.enable",
        BOOLEAN,
        "false",
        "Whether a controller adds itself to the voters while there are fewer than "
        "controller.quorum.voters.max.",
    ),
    meaningless(
        "controller.quorum.append.linger.ms",
        INT,
        "25",
        "How long the leader of the quorum waits for more records before it writes.",
        _NO_LINGER,
        minimum=0,
    ),
    used(
        "controller.quorum.election.backoff.max.ms",
        INT,
        "1000",
        "The longest pause between two elections.",
        minimum=0,
    ),
    used(
        "controller.quorum.election.timeout.ms",
        INT,
        "1000",
        "How long a candidate waits for votes.",
        minimum=0,
    ),
    used(
        "controller.quorum.fetch.max.bytes",
        INT,
        "1048576",
        "How much a node fetches of the metadata log at once.",
        minimum=1,
    ),
    used(
        "controller.quorum.fetch.snapshot.max.bytes",
        INT,
        "1048576",
        "How much a node fetches of a snapshot at once.",
        minimum=1,
    ),
    used(
        "controller.quorum.fetch.timeout.ms",
        INT,
        "2000",
        "A voter that fetches nothing from the leader for this long calls an election; a leader "
        "that no majority has fetched from for one and a half times as long resigns.",
        minimum=0,
    ),
    used(
        "controller.quorum.request.timeout.ms",
        INT,
        "2000",
        "How long a node of the quorum waits for an answer.",
        minimum=0,
    ),
    used(
        "controller.quorum.retry.backoff.ms",
        INT,
        "20",
        "How long a node of the quorum waits before it asks again.",
        minimum=0,
    ),
    meaningless(
        "controller.socket.timeout.ms",
        INT,
        "30000",
        "The socket timeout between controller and brokers.",
        _OWN_DEADLINES,
    ),
    used(
        "initial.broker.registration.timeout.ms",
        INT,
        "60000",
        "How long a broker that starts tries to register with the controller before it gives up.",
    ),
    used(
        "broker.heartbeat.interval.ms",
        INT,
        "2000",
        "How often a broker sends a heartbeat to the controller.",
    ),
    used(
        "broker.session.timeout.ms",
        INT,
        "9000",
        "A broker whose heartbeats stay away for this long is fenced.",
    ),
    used(
        "controlled.shutdown.enable",
        BOOLEAN,
        "true",
        "Whether a broker that stops hands its leaderships over first.",
    ),
    meaningless(
        "controller.performance.always.log.threshold.ms",
        LONG,
        "2000",
        "From which duration the controller logs each event.",
        _NO_EVENT_LOG,
        minimum=0,
        hidden=True,
    ),
    meaningless(
        "controller.performance.sample.period.ms",
        LONG,
        "60000",
        "How often the controller logs its slowest events.",
        _NO_EVENT_LOG,
        minimum=100,
        hidden=True,
    ),
    used("log.dir", LIST, "/tmp/kafka-logs", "Where the data is; an older name of log.dirs."),
    used("log.dirs", LIST, None, "The directories that hold the data."),
    refused("metadata.log.dir", STRING, None, "Where the metadata log is.", _METADATA_PLACE),
    refused("cordoned.log.dirs", LIST, "", "Directories that get no new partitions.", _NO_CORDON),
    meaningless(
        "log.dir.failure.timeout.ms",
        LONG,
        "30000",
        "How long a broker may take to tell of a failed directory.",
        _TOLD_AT_ONCE,
        minimum=1,
    ),
    used(
        "metadata.log.max.record.bytes.between.snapshots",
        LONG,
        "1048576",
        "How many bytes of metadata records lie between two snapshots.",
        minimum=1,
    ),
    used(
        "metadata.log.max.snapshot.interval.ms",
        LONG,
        "3600000",
        "After which time there is a snapshot anyway; 0 is never.",
        minimum=0,
    ),
    meaningless(
        "metadata.log.segment.bytes",
        INT,
        "1073741824",
        "The segment size of the metadata log.",
        _METADATA_SIZE,
        minimum=8388608,
    ),
    meaningless(
        "metadata.log.segment.ms",
        LONG,
        "604800000",
        "The age at which a segment of the metadata log is closed.",
        _METADATA_SIZE,
    ),
    meaningless(
        "metadata.max.idle.interval.ms",
        INT,
        "500",
        "How often an idle controller writes a record.",
        _NO_IDLE_RECORDS,
        minimum=0,
    ),
    meaningless(
        "metadata.max.retention.bytes",
        LONG,
        "104857600",
        "How large the metadata log and its snapshots may grow.",
        _METADATA_SIZE,
    ),
    meaningless(
        "metadata.max.retention.ms",
        LONG,
        "604800000",
        "How long snapshots and segments of the metadata log are kept.",
        _METADATA_SIZE,
    ),
    meaningless(
        "internal.metadata.delete.delay.millis",
        LONG,
        "60000",
        "How long deleted files of the metadata log stay.",
        _METADATA_SIZE,
        hidden=True,
    ),
    meaningless(
        "internal.metadata.log.segment.bytes",
        INT,
        None,
        "The segment size of the metadata log, in tests.",
        _METADATA_SIZE,
        hidden=True,
    ),
    meaningless(
        "internal.metadata.max.batch.size.in.bytes",
        INT,
        "8388608",
        "The largest batch of the metadata log.",
        _METADATA_SIZE,
        hidden=True,
    ),
    meaningless(
        "server.max.startup.time.ms",
        LONG,
        "9223372036854775807",
        "How long a start may take.",
        _NO_WAITING,
        minimum=0,
        hidden=True,
    ),
    meaningless(
        "unstable.api.versions.enable",
        BOOLEAN,
        "false",
        "Whether unfinished versions of APIs are served.",
        _ONLY_STABLE,
        hidden=True,
    ),
    used(
        "unstable.feature.versions.enable",
        BOOLEAN,
        "false",
        "Whether levels of features are supported that Kafka may still change: 4.4-IV0 of "
        "metadata.version. For tests.",
        hidden=True,
    ),
    meaningless(
        "metric.reporters",
        LIST,
        "org.apache.kafka.common.metrics.JmxReporter",
        "Classes that publish metrics.",
        NO_JAVA,
        live=True,
    ),
    meaningless("metrics.num.samples", INT, "2", "Samples per metric.", NO_JAVA, minimum=1),
    meaningless("metrics.recording.level", STRING, "INFO", "How much is measured.", NO_JAVA),
    meaningless(
        "metrics.sample.window.ms", LONG, "30000", "The time a sample covers.", NO_JAVA, minimum=1
    ),
    meaningless(
        "kafka.metrics.polling.interval.secs",
        INT,
        "10",
        "How often the older metrics are polled.",
        NO_JAVA,
        minimum=1,
    ),
    meaningless(
        "kafka.metrics.reporters", LIST, "", "Classes that publish the older metrics.", NO_JAVA
    ),
    used(
        "telemetry.max.bytes",
        INT,
        "1048576",
        "The most that a client may push as metrics at once.",
        minimum=1,
    ),
    refused(
        "config.providers", LIST, "", "Classes that supply values from elsewhere.", _NO_PROVIDERS
    ),
    refused(
        "alter.config.policy.class.name",
        CLASS,
        None,
        "A class that decides whether settings may be changed.",
        _NO_JAVA_CLASSES,
    ),
    refused(
        "create.topic.policy.class.name",
        CLASS,
        None,
        "A class that decides whether a topic may be created.",
        _NO_JAVA_CLASSES,
    ),
    refused(
        "client.quota.callback.class",
        CLASS,
        None,
        "A class that decides on quotas.",
        _NO_JAVA_CLASSES,
    ),
)
