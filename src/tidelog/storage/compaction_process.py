"""Compaction in a process of its own, so that its work per record never holds up the event loop.

`CompactionProcess` is the node's side: a thread that hands one task at a time to the helper
process and brings its events back to the loop thread. The helper is this module run as a
program: it reads tasks as lines of JSON from standard input, carries them out at the lowest
priority, and writes events as lines of JSON to standard output. It is started with the first
task, ends when it has been idle for a while, and never outlives the node.
"""

from __future__ import annotations

import os
import queue
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import BinaryIO, Protocol

import msgspec

from tidelog.storage.compaction import (
    NO_RATE_LIMIT,
    CompactedGroup,
    CompactionEvent,
    CompactionFailure,
    CompactionTask,
    compact,
)
from tidelog.storage.files import CorruptFileError, Files, OsFiles

IDLE_SECONDS_MAX = 60.0
_STOP_SECONDS = 5.0
_SLEEP_SECONDS = 0.25

OnEvent = Callable[[CompactionEvent], None]


class CompactionWorker(Protocol):
    """Carries out tasks, one at a time."""

    def submit(self, task: CompactionTask, on_event: OnEvent) -> None:
        """Starts a pass. `on_event` is called on the loop thread for each group and, last, with
        its end or failure."""
        ...

    def close(self) -> None: ...


def run_task(
    task: CompactionTask, files: Files, on_bytes: Callable[[int], None]
) -> Iterator[CompactionEvent]:
    """The events of a pass, with what can go wrong in it as the last one."""
    try:
        yield from compact(task, files, on_bytes)
    except CorruptFileError as error:
        yield CompactionFailure(str(error), is_corrupt=True)
    except OSError as error:
        yield CompactionFailure(str(error), is_corrupt=False)


class CompactionProcess:
    """A `CompactionWorker` whose work happens in a helper process."""

    def __init__(
        self,
        post: Callable[[Callable[[], None]], None],
        *,
        idle_seconds_max: float = IDLE_SECONDS_MAX,
    ) -> None:
        self._post = post
        self._idle_seconds_max = idle_seconds_max
        self._tasks: queue.SimpleQueue[tuple[CompactionTask, OnEvent] | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._closing = False

    @property
    def pid(self) -> int | None:
        """The helper's process id while it runs."""
        return None if self._process is None else self._process.pid

    def submit(self, task: CompactionTask, on_event: OnEvent) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._serve, name="compaction", daemon=True)
            self._thread.start()
        self._tasks.put((task, on_event))

    def close(self) -> None:
        """Ends the helper at once; what it had half written is removed when the log is opened."""
        self._closing = True
        self._tasks.put(None)
        process = self._process
        if process is not None:
            process.terminate()
        if self._thread is not None:
            self._thread.join(_STOP_SECONDS)

    def _serve(self) -> None:
        try:
            while True:
                timeout = self._idle_seconds_max if self._process is not None else None
                try:
                    item = self._tasks.get(timeout=timeout)
                except queue.Empty:
                    self._stop_process()
                    continue
                if item is None or self._closing:
                    return
                self._carry_out(*item)
        finally:
            self._stop_process()

    def _carry_out(self, task: CompactionTask, on_event: OnEvent) -> None:
        try:
            for event in self._events(task):
                self._hand_over(on_event, event)
                if not isinstance(event, CompactedGroup):
                    return
            failure = CompactionFailure("the compaction process ended", is_corrupt=False)
        except OSError as error:
            failure = CompactionFailure(f"the compaction process failed: {error}", is_corrupt=False)
        except Exception as error:  # noqa: BLE001  a bug costs the cleaning of this log, no more
            problem = f"the compaction process failed: {type(error).__name__}: {error}"
            failure = CompactionFailure(problem, is_corrupt=True)
        self._stop_process()
        self._hand_over(on_event, failure)

    def _hand_over(self, on_event: OnEvent, event: CompactionEvent) -> None:
        if not self._closing:
            self._post(lambda: on_event(event))

    def _events(self, task: CompactionTask) -> Iterator[CompactionEvent]:
        if self._process is None or self._process.poll() is not None:
            self._process = self._start_process()
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(msgspec.json.encode(task) + b"\n")
        self._process.stdin.flush()
        for line in self._process.stdout:
            yield msgspec.json.decode(line, type=CompactionEvent)

    def _start_process(self) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [sys.executable, "-m", __name__, str(os.getpid())],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )

    def _stop_process(self) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        process.terminate()
        process.communicate()


class Throttle:
    """Keeps a stream of bytes below a rate by waiting."""

    def __init__(
        self,
        bytes_per_second_max: float = NO_RATE_LIMIT,
        *,
        monotonic: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.bytes_per_second_max = bytes_per_second_max
        self._monotonic = monotonic
        self._sleep = sleep
        self._free_at = monotonic()

    def on_bytes(self, size_bytes: int) -> None:
        now = self._monotonic()
        self._free_at = max(self._free_at, now) + size_bytes / self.bytes_per_second_max
        if self._free_at > now:
            self._sleep(self._free_at - now)


def serve(tasks: BinaryIO, events: BinaryIO, node_pid: int) -> None:
    """The helper's life: one task after the other until standard input ends."""

    def end_with_node() -> None:
        if os.getppid() != node_pid:
            raise SystemExit  # the node is gone, and its successor may be at work on the same log

    def sleep(seconds: float) -> None:
        while seconds > 0:
            time.sleep(min(seconds, _SLEEP_SECONDS))
            seconds -= _SLEEP_SECONDS
            end_with_node()

    throttle = Throttle(sleep=sleep)

    def on_bytes(size_bytes: int) -> None:
        end_with_node()
        throttle.on_bytes(size_bytes)

    files = OsFiles()
    for line in tasks:
        task = msgspec.json.decode(line, type=CompactionTask)
        throttle.bytes_per_second_max = task.bytes_per_second_max
        for event in run_task(task, files, on_bytes):
            events.write(msgspec.json.encode(event) + b"\n")
            events.flush()


if __name__ == "__main__":
    os.nice(19)
    serve(sys.stdin.buffer, sys.stdout.buffer, int(sys.argv[1]))
