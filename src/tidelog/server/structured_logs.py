"""Log lines for people and programs: an event name and its fields, one line each.

`text` lines read `2026-01-31T12:00:00.000Z INFO node_started node_id=1`, `json` lines hold the same
as an object. An event that repeats fast (a peer that sends garbage in a loop) is written a limited
number of times per second; the next line of that event says how many were left out.

The layers below the server, which know nothing of this, write with the logging module of the
standard library; `capture_logging` brings their lines here.
"""

from __future__ import annotations

import logging
import sys
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from enum import IntEnum
from typing import TextIO

_LINES_PER_SECOND_MAX = 50


class Level(IntEnum):
    """How much a line matters."""

    DEBUG = 10
    INFO = 20
    WARNING = 30
    ERROR = 40
    CRITICAL = 50
    OFF = 100


class StructuredLog:
    """Writes log lines to a stream, standard error unless told."""

    def __init__(
        self, *, level: Level = Level.INFO, as_json: bool = False, stream: TextIO | None = None
    ) -> None:
        self.level = level
        self._as_json = as_json
        self._stream = stream
        self._recent: dict[str, list[int]] = {}

    def debug(self, event: str, **fields: object) -> None:
        """Details that only help to find a fault."""
        self._write(Level.DEBUG, event, fields)

    def info(self, event: str, **fields: object) -> None:
        """What an operator wants to know has happened."""
        self._write(Level.INFO, event, fields)

    def warning(self, event: str, **fields: object) -> None:
        """Something is wrong that the node copes with."""
        self._write(Level.WARNING, event, fields)

    def error(self, event: str, **fields: object) -> None:
        """Something is wrong that needs a person."""
        self._write(Level.ERROR, event, fields)

    def critical(self, event: str, error: BaseException, **fields: object) -> None:
        """The node is about to end because of this error; its traceback is told."""
        fields["error"] = f"{type(error).__name__}: {error}"
        fields["traceback"] = "".join(traceback.format_exception(error))
        self._write(Level.CRITICAL, event, fields)

    def exception(self, event: str, **fields: object) -> None:
        """An error with the traceback of the exception that is being handled."""
        kind, value, _ = sys.exc_info()
        fields["error"] = f"{kind.__name__ if kind else None}: {value}"
        fields["traceback"] = traceback.format_exc()
        self._write(Level.ERROR, event, fields)

    def _write(self, level: Level, event: str, fields: dict[str, object]) -> None:
        if level < self.level:
            return
        now_ns = time.time_ns()
        left_out = self._count(event, now_ns // 1_000_000_000)
        if left_out is None:
            return
        if left_out:
            fields["left_out_before"] = left_out
        line = _json_line if self._as_json else _text_line
        stream = self._stream or sys.stderr
        try:
            stream.write(line(now_ns, level, event, fields))
            stream.flush()
        except (OSError, ValueError):
            # Nobody reads standard error any more; that must not stop a broker.
            pass

    def _count(self, event: str, second: int) -> int | None:
        """How many lines of this event were left out before this one; None: leave this one out."""
        recent = self._recent.get(event)
        if recent is None or recent[0] != second:
            left_out = max(0, recent[1] - _LINES_PER_SECOND_MAX) if recent else 0
            self._recent[event] = [second, 1]
            return left_out
        recent[1] += 1
        return 0 if recent[1] <= _LINES_PER_SECOND_MAX else None


class _Forward(logging.Handler):
    """Hands the lines of the logging module to a structured log."""

    def __init__(self, log: StructuredLog) -> None:
        super().__init__()
        self._log = log

    def emit(self, record: logging.LogRecord) -> None:
        event = record.name.rpartition(".")[2]
        if record.levelno >= logging.ERROR:
            self._log.error(event, message=record.getMessage())
        elif record.levelno >= logging.WARNING:
            self._log.warning(event, message=record.getMessage())
        elif record.levelno >= logging.INFO:
            self._log.info(event, message=record.getMessage())
        else:
            self._log.debug(event, message=record.getMessage())


@contextmanager
def capture_logging(log: StructuredLog) -> Iterator[None]:
    """Write what Tidelog's own modules log with the logging module to `log`, for a while."""
    logger = logging.getLogger("tidelog")
    forward = _Forward(log)
    logger.addHandler(forward)
    propagated, logger.propagate = logger.propagate, False
    level_before = logger.level
    logger.setLevel(min(int(log.level), logging.CRITICAL))
    try:
        yield
    finally:
        logger.removeHandler(forward)
        logger.propagate = propagated
        logger.setLevel(level_before)


def _time(now_ns: int) -> str:
    seconds, rest_ns = divmod(now_ns, 1_000_000_000)
    return f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(seconds))}.{rest_ns // 1_000_000:03}Z"


def _text_line(now_ns: int, level: Level, event: str, fields: dict[str, object]) -> str:
    # The traceback is for people: below the line, as it is.
    trace = fields.pop("traceback", "")
    words = [_time(now_ns), level.name, event]
    words += [f"{name}={_text_value(value)}" for name, value in fields.items()]
    return " ".join(words) + "\n" + str(trace)


def _text_value(value: object) -> str:
    text = str(value)
    if text and text.isprintable() and not any(mark in text for mark in ' "='):
        return text
    return '"' + text.encode("unicode_escape").decode("ascii").replace('"', '\\"') + '"'


def _json_line(now_ns: int, level: Level, event: str, fields: dict[str, object]) -> str:
    import json

    head = {"time": _time(now_ns), "level": level.name, "event": event}
    return json.dumps({**head, **fields}, default=str) + "\n"
