"""The session in which a pipeline runs."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from tidelog.spark.pipeline.file.model import PipelineSpec
from tidelog.spark.pipeline.run.failure import is_connection_lost
from tidelog.spark.runtime.session import existing_session, session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_TOLD_ANYWAY = (
    "executor.Executor",
    "scheduler.TaskSetManager",
    "sql.execution.datasources.v2.DataWritingSparkTask",
    "sql.execution.datasources.v2.WriteToDataSourceV2Exec",
    "sql.execution.streaming.runtime.MicroBatchExecution",
    "sql.execution.streaming.runtime.StreamMetadata",
)


@contextmanager
def pipeline_session(
    spec: PipelineSpec,
    given: SparkSession | None = None,
    *,
    master: str | None = None,
    conf: Mapping[str, str] | None = None,
) -> Iterator[SparkSession]:
    """A session for one pipeline.

    Without one that is given, and if this process has none, a session is started with the file's
    settings, over which `master` and `conf` go, and stopped at the end. In a session that is given,
    the pipeline has views and SQL settings of its own beside it; settings that only a new session
    takes have no effect.
    """
    wanted = {**spec.spark.conf, **(conf or {})}
    given = given or existing_session()
    if given is None:
        place = master or spec.spark.master
        own = session(spec.name, master=place, conf=wanted, is_java_detached=True)
        try:
            _silence(own)
            _activate(own)
            yield own
        finally:
            _stop(own)
        return
    beside = given.newSession()
    settings = {**given.conf.getAll, **wanted}
    for name, value in settings.items():
        if beside.conf.isModifiable(name):
            beside.conf.set(name, value)
    _activate(beside)
    try:
        yield beside
    finally:
        _activate(given)


def _activate(spark: SparkSession) -> None:
    """Make it the session of this thread: Spark looks there for sources and sinks in Python."""
    java = getattr(spark, "_jvm", None)
    if java is not None:
        java.SparkSession.setActiveSession(spark._jsparkSession)


def _silence(spark: SparkSession) -> None:
    """Keep from the screen, with their stacks, the failures of queries that the runner tells."""
    java = getattr(spark, "_jvm", None)
    if java is None:
        return
    log4j = java.org.apache.logging.log4j
    for name in _TOLD_ANYWAY:
        log4j.core.config.Configurator.setLevel(f"org.apache.spark.{name}", log4j.Level.OFF)
    _expect_the_end(spark.sparkContext._accumulatorServer)


def _expect_the_end(server: Any) -> None:
    """Spark's Java side hangs up when it stops; PySpark's server would print a traceback for it."""
    tell = server.handle_error

    def handle_error(request: Any, client_address: Any) -> None:
        if not isinstance(sys.exception(), EOFError):
            tell(request, client_address)

    server.handle_error = handle_error


def _stop(spark: SparkSession) -> None:
    try:
        spark.stop()
    except Exception as error:
        # What is gone already needs no stop, and why it went is told elsewhere.
        if not is_connection_lost(error):
            raise
