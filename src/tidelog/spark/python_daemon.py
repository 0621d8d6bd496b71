"""Spark's daemon of Python workers, without its last words.

When Spark drops a worker, the worker tries to write to a socket that is closed. Over TCP nobody
hears of that; over a Unix socket the daemon would print a traceback for every worker that is
dropped, at each `limit` and at the end of each query.
"""

import socket

from pyspark import daemon

_serve = daemon.worker


def worker(sock: socket.socket, authenticated: bool) -> int:
    """Serve Spark until it goes away."""
    try:
        return _serve(sock, authenticated)
    except BrokenPipeError:
        return 1


if __name__ == "__main__":
    daemon.worker = worker
    daemon.manager()
