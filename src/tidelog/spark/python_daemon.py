"""Spark's daemons of Python workers, without their last words.

When Spark drops a worker, the worker tries to write to a socket that is closed. Over TCP nobody
hears of that; over a Unix socket the daemon would print a traceback for every worker that is
dropped, at each `limit` and at the end of each query.

Executors' daemons are this module, as the session asks. Planners', which make and plan sources and
commit sinks, are always Spark's own: their workers become quiet when they import ours.
"""

import socket
import sys
from collections.abc import Callable

Serve = Callable[[socket.socket, bool], int]


def quiet(serve: Serve) -> Serve:
    """Serve Spark until it goes away."""

    def worker(sock: socket.socket, authenticated: bool) -> int:
        try:
            return serve(sock, authenticated)
        except BrokenPipeError:
            return 1

    return worker


def quiet_this_worker() -> None:
    """In a worker of Spark's own daemon: end without a word from the next task on.

    The daemon's loop, in this process as it was forked, looks its function up for each task.
    """
    main = sys.modules["__main__"]
    spec = getattr(main, "__spec__", None)
    if spec is not None and spec.name == "pyspark.daemon":
        main.worker = quiet(main.worker)  # type: ignore[attr-defined]


if __name__ == "__main__":
    from pyspark import daemon

    daemon.worker = quiet(daemon.worker)  # type: ignore[assignment]
    daemon.manager()
