"""Spark's daemons of Python workers, without their last words.

When Spark drops a worker, the worker tries to write to a socket that is closed. Over TCP nobody
hears of that; over a Unix socket the daemon would print a traceback for every worker that is
dropped, at each `limit` and at the end of each query.

Executors' daemons are this module, as the session asks. Those of the driver, which make and plan
sources, commit sinks and call functions for each micro-batch, are always Spark's own: their workers
become quiet when they import ours. So does the process that a streaming query has for its source:
Spark closes its socket before it ends it, and in between it may get to say so.
"""

import sys
import traceback
from types import ModuleType, TracebackType
from typing import Any

_DAEMON = "pyspark.daemon"
_SOURCE_RUNNER = "pyspark.sql.streaming.python_streaming_source_runner"


class _Tracebacks:
    """The module `traceback`, which says nothing of a peer that went away."""

    def __getattr__(self, name: str) -> Any:
        return getattr(traceback, name)

    def print_exc(self) -> None:
        if not isinstance(sys.exception(), BrokenPipeError):
            traceback.print_exc()


def quiet(daemon: ModuleType) -> None:
    """Let the daemon's loop, which prints what ends a worker, pass over dropped ones."""
    daemon.traceback = _Tracebacks()  # type: ignore[attr-defined]


def quiet_this_worker() -> None:
    """In a worker of Spark's own daemon, whose loop it was forked from, and in the process of a
    query's source: end without a word."""
    main = sys.modules["__main__"]
    spec = getattr(main, "__spec__", None)
    if spec is None:
        return
    if spec.name == _DAEMON:
        quiet(main)
    elif spec.name == _SOURCE_RUNNER:
        sys.excepthook = _tell_unless_dropped


def _tell_unless_dropped(
    kind: type[BaseException], error: BaseException, trace: TracebackType | None
) -> None:
    if not isinstance(error, BrokenPipeError):
        sys.__excepthook__(kind, error, trace)


if __name__ == "__main__":
    from pyspark import daemon

    quiet(daemon)
    daemon.manager()
