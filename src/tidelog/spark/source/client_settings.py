"""Kafka's settings for consumers, given as options `kafka.*`.

Those that Tidelog's reader has a use for are in USED; Spark's own source refuses some, and so does
this one (REFUSED); the rest of Kafka's names is accepted and has no effect (IGNORED), so that the
options of an existing query can stay as they are.
"""

from collections.abc import Mapping

from tidelog.spark.errors import OptionError

PREFIX = "kafka."

USED = frozenset(
    {
        "bootstrap.servers",
        "client.id",
        "default.api.timeout.ms",
        "fetch.max.bytes",
        "isolation.level",
        "max.partition.fetch.bytes",
        "request.timeout.ms",
        "security.protocol",
    }
)

REFUSED = {
    "auto.offset.reset": "set startingOffsets instead: where a query reads is Spark's to keep",
    "enable.auto.commit": "set groupId to have offsets committed after each batch",
    "interceptor.classes": "they could change what is read, and there is no Java here to run them",
    "key.deserializer": "keys are binary: turn the column key into what you need",
    "value.deserializer": "values are binary: turn the column value into what you need, "
    "or set valueFormat",
}

# What consumers and producers have in common: connections, metadata and metrics.
IGNORED_OF_ANY_CLIENT = frozenset(
    {
        "auto.include.jmx.reporter",
        "client.dns.lookup",
        "client.rack",
        "connections.max.idle.ms",
        "enable.metrics.push",
        "metadata.max.age.ms",
        "metadata.recovery.rebootstrap.trigger.ms",
        "metadata.recovery.strategy",
        "metric.reporters",
        "metrics.num.samples",
        "metrics.recording.level",
        "metrics.sample.window.ms",
        "receive.buffer.bytes",
        "reconnect.backoff.max.ms",
        "reconnect.backoff.ms",
        "retry.backoff.max.ms",
        "retry.backoff.ms",
        "send.buffer.bytes",
        "socket.connection.setup.timeout.max.ms",
        "socket.connection.setup.timeout.ms",
    }
)
IGNORED = IGNORED_OF_ANY_CLIENT | {
    "allow.auto.create.topics",
    "auto.commit.interval.ms",
    "check.crcs",
    "exclude.internal.topics",
    "fetch.max.wait.ms",
    "fetch.min.bytes",
    "group.id",
    "group.instance.id",
    "group.protocol",
    "group.remote.assignor",
    "heartbeat.interval.ms",
    "max.poll.interval.ms",
    "max.poll.records",
    "partition.assignment.strategy",
    "session.timeout.ms",
}
# Without effect as long as security.protocol must be PLAINTEXT.
_IGNORED_FAMILIES = ("sasl.", "security.", "ssl.")


def check_client_settings(options: Mapping[str, str]) -> None:
    """Raise OptionError for what cannot be had; unknown names are left to the caller."""
    for name in options:
        reason = REFUSED.get(name.removeprefix(PREFIX)) if name.startswith(PREFIX) else None
        if reason is not None:
            raise OptionError(f"option {name} is not supported: {reason}")
    protocol = options.get("kafka.security.protocol", "PLAINTEXT")
    if protocol.upper() != "PLAINTEXT":
        raise OptionError(
            f"option kafka.security.protocol={protocol!r} is not supported: only PLAINTEXT is"
        )


def is_known_client_setting(option: str) -> bool:
    """Whether Kafka's consumer has a setting of this name, with `kafka.` before it."""
    if not option.startswith(PREFIX):
        return False
    name = option.removeprefix(PREFIX)
    return name in USED or name in IGNORED or name.startswith(_IGNORED_FAMILIES)
