"""The session in which a pipeline runs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

from tidelog.spark.pipeline.failure import is_connection_lost
from tidelog.spark.pipeline.model import PipelineSpec

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


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
    given = given or _existing()
    if given is None:
        from tidelog.spark.session import session

        own = session(spec.name, master=master or spec.spark.master, conf=wanted)
        try:
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


def _existing() -> SparkSession | None:
    try:
        from pyspark.sql import SparkSession
    except ImportError:
        return None  # session() says what to install
    # The active session is one of a thread, and this may be another thread.
    return SparkSession.getActiveSession() or getattr(SparkSession, "_instantiatedSession", None)


def _activate(spark: SparkSession) -> None:
    """Make it the session of this thread: Spark looks there for sources and sinks in Python."""
    java = getattr(spark, "_jvm", None)
    if java is not None:
        java.SparkSession.setActiveSession(spark._jsparkSession)


def _stop(spark: SparkSession) -> None:
    try:
        spark.stop()
    except Exception as error:
        # What is gone already needs no stop, and why it went is told elsewhere.
        if not is_connection_lost(error):
            raise
