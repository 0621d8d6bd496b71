"""Hears on the driver that a micro-batch is complete, and brings its consumer group there.

It matters for queries whose trigger pauses between micro-batches: see `group_commits`. Events come
after the fact and may be late, and the stream reader commits too; so offsets wait here for a moment
and only the newest of a source are committed.
"""

import json
import logging
import threading
from typing import TYPE_CHECKING, Any

from tidelog.errors import TidelogError
from tidelog.spark.errors import SparkError
from tidelog.spark.offsets import Offsets, offsets_from_json

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tidelog.spark.source.group_commits import GroupCommits

_log = logging.getLogger(__name__)

_SETTLE_S = 0.5
_SOURCE = "StreamingDataSourceV2ScanRelation"

_listening: set[str] = set()


def commit_group_offsets(spark: "SparkSession") -> None:
    """Have consumer groups (option groupId) brought up to date right after each micro-batch.

    `tidelog.spark.session()` does it for its sessions. Without it, and over Spark Connect, a group
    is brought up to date when Spark looks for the next micro-batch.
    """
    from pyspark import SparkContext
    from pyspark.java_gateway import ensure_callback_server_started

    if not hasattr(spark, "_jsparkSession"):
        raise SparkError("over Spark Connect a group is brought up to date at the next trigger")
    session_id = spark._jsparkSession.sessionUUID()
    if session_id in _listening:
        return
    gateway = SparkContext._gateway
    assert gateway is not None
    ensure_callback_server_started(gateway)  # type: ignore[no-untyped-call]
    streams = spark._jsparkSession.streams()
    made = gateway.jvm.org.apache.spark.sql.streaming.PythonStreamingQueryListenerWrapper
    streams.addListener(made(_JavaListener(streams)))
    _listening.add(session_id)


class _JavaListener:
    """Takes Spark's events as they are in Java.

    PySpark would turn each into Python objects, with dozens of calls to Java, before anyone knows
    whether the query has a group at all.
    """

    class Java:
        implements = ["org.apache.spark.sql.streaming.PythonStreamingQueryListener"]

    def __init__(self, streams: Any) -> None:
        self._streams = streams
        self._started: dict[str, Any] = {}
        self._queries: dict[str, _QueryGroups] = {}

    def onQueryStarted(self, event: Any) -> None:  # noqa: N802
        # It may be gone from the active ones when its first progress is heard of.
        self._started[event.runId().toString()] = self._streams.get(event.id())

    def onQueryProgress(self, event: Any) -> None:  # noqa: N802
        progress = event.progress()
        run_id = progress.runId().toString()
        started = self._started.pop(run_id, None)
        if started is not None:
            self._queries[run_id] = _QueryGroups(_groups_of(started))
        groups = self._queries.get(run_id)
        if groups:
            groups.note(json.loads(progress.json())["sources"])

    def onQueryIdle(self, event: Any) -> None:  # noqa: N802
        """Nothing moved."""

    def onQueryTerminated(self, event: Any) -> None:  # noqa: N802
        run_id = event.runId().toString()
        self._started.pop(run_id, None)
        groups = self._queries.pop(run_id, None)
        if groups:
            groups.commit()


class _QueryGroups:
    """The groups of one query by the names that its sources have in its progress."""

    def __init__(self, groups: "dict[str, GroupCommits]") -> None:
        self._groups = groups
        self._noted: dict[str, Offsets] = {}
        self._lock = threading.Lock()
        self._timer: threading.Timer | None = None

    def __bool__(self) -> bool:
        return bool(self._groups)

    def note(self, sources: list[dict[str, Any]]) -> None:
        """Commit what a micro-batch ended with, unless the next one ends at once."""
        with self._lock:
            for source in sources:
                if source["description"] in self._groups:
                    self._noted[source["description"]] = offsets_from_json(source["endOffset"])
            if self._timer is not None:
                self._timer.cancel()
            self._timer = threading.Timer(_SETTLE_S, self.commit)
            self._timer.daemon = True
            self._timer.start()

    def commit(self) -> None:
        with self._lock:
            noted, self._noted = self._noted, {}
        for description, offsets in noted.items():
            try:
                self._groups[description].bring_to(offsets)
            except TidelogError as error:
                _log.warning("%s", error)


def _groups_of(query: Any) -> "dict[str, GroupCommits]":
    """The groups that the sources of a query name in their options."""
    from tidelog.spark.source.group_commits import GroupCommits
    from tidelog.spark.source.options import parse_stream_options

    groups = {}
    leaves = query.streamingQuery().logicalPlan().collectLeaves()
    for at in range(leaves.size()):
        leaf = leaves.apply(at)
        if leaf.getClass().getSimpleName() != _SOURCE or leaf.relation().name() != "tidelog":
            continue
        options = dict(leaf.relation().options().asCaseSensitiveMap())
        commits = GroupCommits.of(parse_stream_options(options))
        if commits is not None:
            groups[leaf.stream().toString()] = commits
    return groups
