"""Letting a query end after the micro-batch that it is in.

Spark can only stop a query in the middle of a batch. But its loop looks before each batch whether
the query is still meant to run: telling it so, without the interrupt that `stop()` adds, is all
that it takes. That is reached by names that Spark does not promise, and in a classic session only;
where they are not as expected, the caller falls back to `stop()`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery


class LastBatch:
    """A query whose running batch is its last one."""

    def __init__(self, thread: Any) -> None:
        self._thread = thread

    def is_over(self) -> bool:
        return not self._thread.isAlive()


def begin_last_batch(query: StreamingQuery) -> LastBatch | None:
    """Let the query end after its batch; None if this Spark does not let us."""
    wrapper = getattr(query, "_jsq", None)
    if wrapper is None:
        return None
    from py4j.protocol import Py4JError  # type: ignore[import-untyped]
    from pyspark import SparkContext

    try:
        execution = wrapper.streamingQuery()
        thread = execution.queryExecutionThread()
        state = execution.state()
        name = str(state.get().getClass().getName())
        package = SparkContext._jvm
        for part in name.split(".")[:-1]:
            package = getattr(package, part)
        terminated = getattr(getattr(package, "TERMINATED$"), "MODULE$")
        thread.isAlive()
        state.set(terminated)
    except (Py4JError, AttributeError, TypeError):
        return None
    return LastBatch(thread)
