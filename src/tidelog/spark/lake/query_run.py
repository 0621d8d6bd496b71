"""Start a streaming query, wait for it, and say in one line why it failed."""

import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from tidelog.spark.errors import SparkError

_POLL_S = 1

# The last line of a Python traceback from a worker, as Spark puts it into its own messages.
_OUR_ERROR = re.compile(r"^(?:pyspark\S+: )?tidelog\.[\w.]+: (.+)$", re.MULTILINE)
_ANY_ERROR = re.compile(r"^(?:[\w.]+(?:Error|Exception)): (.+)$", re.MULTILINE)


@contextmanager
def starting(spark: SparkSession) -> Iterator[None]:
    """A block that builds and starts a query, in any thread; SparkError if that fails."""
    # Spark looks for sources and sinks in Python in the session of the thread, if there is one.
    java = getattr(spark, "_jvm", None)
    if java is not None:
        java.SparkSession.setActiveSession(spark._jsparkSession)
    try:
        yield
    except (PySparkException, Py4JError) as error:
        raise SparkError(failure_text(error)) from error


def wait_for(
    query: StreamingQuery,
    *,
    is_stopping: Callable[[], bool] = lambda: False,
    on_poll: Callable[[], None] = lambda: None,
) -> None:
    """Wait until a query ends, or end it when that is asked for; SparkError if it failed.

    A query that is to be stopped may finish the micro-batch that it is in.
    """
    try:
        while query.isActive:
            query.awaitTermination(_POLL_S)
            on_poll()
            if is_stopping():
                _stop_between_batches(query)
                break
        failure = query.exception()
    except (PySparkException, Py4JError) as error:
        raise SparkError(failure_text(error)) from error
    finally:
        if query.isActive:
            query.stop()
    if failure is not None:
        raise SparkError(failure_text(failure))


def failure_text(error: BaseException) -> str:
    """The reason of a failure without tracebacks: what our own code said, if it was ours."""
    text = str(error)
    for pattern in (_OUR_ERROR, _ANY_ERROR):
        found = pattern.findall(text)
        if found:
            return str(found[-1]).strip()
    return text.strip().splitlines()[0] if text.strip() else type(error).__name__


def _stop_between_batches(query: StreamingQuery, *, timeout_s: float = 30.0) -> None:
    deadline_s = time.monotonic() + timeout_s
    while query.isActive and query.status["isTriggerActive"] and time.monotonic() < deadline_s:
        time.sleep(0.05)
    query.stop()
