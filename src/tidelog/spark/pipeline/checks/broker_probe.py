"""A look at the brokers before Spark starts, which takes seconds and says little when they fail."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass

from tidelog.client.cluster import Cluster
from tidelog.client.errors import ClientError, ConnectError
from tidelog.protocol.errors import ErrorCode
from tidelog.spark.errors import SparkError
from tidelog.spark.pipeline.file.graph import Graph
from tidelog.spark.pipeline.file.model import PipelineSpec, TopicSink, TopicSource
from tidelog.spark.pipeline.run.events import BrokerAway

_TIMEOUT_S = 3.0
# A topic that was just made is not known to all brokers of a cluster yet.
_LOOKS = 5
_LOOK_INTERVAL_S = 0.2

_BOOTSTRAP = "kafka.bootstrap.servers"


@dataclass(frozen=True, slots=True)
class _Wanted:
    bootstrap: str
    sources: dict[str, str]  # by topic


def probe_brokers(spec: PipelineSpec) -> Iterator[BrokerAway]:
    """The brokers that do not answer; SparkError if one does, but lacks a topic that is read."""
    for wanted in _wanted(spec):
        try:
            absent = _absent(wanted)
        except ConnectError as error:
            yield BrokerAway(wanted.bootstrap, str(error))
            continue
        except ClientError:
            continue  # it answers; what it minds the queries will tell
        if absent:
            named = [f"{topic} (source {wanted.sources[topic]})" for topic in absent]
            raise SparkError(
                f"{spec.name}: there is no topic {', '.join(named)} at {wanted.bootstrap}"
            )


def _wanted(spec: PipelineSpec) -> list[_Wanted]:
    found: dict[str, _Wanted] = {}
    used = Graph(spec).used()
    for name, source in spec.sources.items():
        if isinstance(source, TopicSource) and name in used:
            bootstrap = source.options[_BOOTSTRAP]
            topics = found.setdefault(bootstrap, _Wanted(bootstrap, {})).sources
            # Who does not mind losing data goes on without a topic that was deleted.
            if source.options.get("failOnDataLoss", "true").lower() != "false":
                topics.update(dict.fromkeys(source.topics, name))
    for sink in spec.sinks.values():
        if isinstance(sink, TopicSink):
            bootstrap = sink.options[_BOOTSTRAP]
            found.setdefault(bootstrap, _Wanted(bootstrap, {}))
    return list(found.values())


def _absent(wanted: _Wanted) -> list[str]:
    absent: list[str] = []
    for look in range(_LOOKS):
        if look:
            time.sleep(_LOOK_INTERVAL_S)
        with Cluster(wanted.bootstrap, timeout_s=_TIMEOUT_S) as cluster:
            absent = [
                each.name or ""
                for each in cluster.metadata(wanted.sources).topics
                if each.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            ]
        if not absent:
            break
    return absent
