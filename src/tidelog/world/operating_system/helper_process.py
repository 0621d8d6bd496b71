"""Work in a process of its own, so that what it does per record never holds up the event loop.

`HelperProcess` is the node's side: a thread that hands one task at a time to the helper and brings
its events back to the loop thread. The helper is this module run as a program, with the name of the
function to run: it reads tasks as lines of JSON from standard input, carries them out at the lowest
priority, and writes events as lines of JSON to standard output, with an empty line behind the last
event of a task. It is started with the first task, ends when it has been idle for a while, and
never outlives the node.
"""

from __future__ import annotations

import os
import queue
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from importlib import import_module
from typing import Any, BinaryIO, Generic, NamedTuple, get_args, get_type_hints

import msgspec

from tidelog.world.operating_system.files import OsFiles
from tidelog.world.workers import NO_RATE_LIMIT, IsolatedWork, Task, TaskEvent

IDLE_SECONDS_MAX = 60.0
_STOP_SECONDS = 5.0
_SLEEP_SECONDS = 0.25
_END_OF_TASK = b"\n"


class HelperProcess(Generic[Task, TaskEvent]):
    """An `Isolated` whose work happens in a helper process.

    `failed(problem, is_bug)` makes the last event of a task whose helper came to its end.
    """

    def __init__(
        self,
        work: IsolatedWork[Task, TaskEvent],
        failed: Callable[[str, bool], TaskEvent],
        post: Callable[[Callable[[], None]], None],
        *,
        idle_seconds_max: float = IDLE_SECONDS_MAX,
    ) -> None:
        self._work_name = f"{work.__module__}:{work.__name__}"
        self._event_type = _types_of(work).event
        self._failed = failed
        self._post = post
        self._idle_seconds_max = idle_seconds_max
        self._tasks: queue.SimpleQueue[tuple[Task, Callable[[TaskEvent], None]] | None] = (
            queue.SimpleQueue()
        )
        self._thread: threading.Thread | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._closing = False

    @property
    def pid(self) -> int | None:
        """The helper's process id while it runs."""
        return None if self._process is None else self._process.pid

    def submit(self, task: Task, on_event: Callable[[TaskEvent], None], /) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._serve, name=self._work_name, daemon=True)
            self._thread.start()
        self._tasks.put((task, on_event))

    def close(self) -> None:
        """Ends the helper at once."""
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

    def _carry_out(self, task: Task, on_event: Callable[[TaskEvent], None]) -> None:
        try:
            for line in self._lines_for(task):
                if line == _END_OF_TASK:
                    return
                self._hand_over(on_event, msgspec.json.decode(line, type=self._event_type))
            failure = self._failed("the helper process ended", False)
        except OSError as error:
            failure = self._failed(f"the helper process failed: {error}", False)
        except Exception as error:  # noqa: BLE001  a bug costs this task, no more
            failure = self._failed(
                f"the helper process failed: {type(error).__name__}: {error}", True
            )
        self._stop_process()
        self._hand_over(on_event, failure)

    def _hand_over(self, on_event: Callable[[TaskEvent], None], event: TaskEvent) -> None:
        if not self._closing:
            self._post(lambda: on_event(event))

    def _lines_for(self, task: Task) -> Iterator[bytes]:
        if self._process is None or self._process.poll() is not None:
            self._process = self._start_process()
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(msgspec.json.encode(task) + b"\n")
        self._process.stdin.flush()
        # Not by `yield from`, which would close the stream together with this generator.
        for line in self._process.stdout:  # noqa: UP028
            yield line

    def _start_process(self) -> subprocess.Popen[bytes]:
        arguments = (self._work_name, str(os.getpid()))
        return subprocess.Popen(
            [sys.executable, "-m", __name__, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )

    def _stop_process(self) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        process.terminate()
        process.communicate()


class _WorkTypes(NamedTuple):
    task: Any
    event: Any


def _types_of(work: Callable[..., Any]) -> _WorkTypes:
    """What a function takes first and what its iterator gives, by its annotations."""
    hints = get_type_hints(work)
    event = get_args(hints.pop("return"))[0]
    return _WorkTypes(next(iter(hints.values())), event)


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


def serve(work_name: str, tasks: BinaryIO, events: BinaryIO, node_pid: int) -> None:
    """The helper's life: one task after the other until standard input ends."""

    def end_with_node() -> None:
        if os.getppid() != node_pid:
            raise SystemExit  # the node is gone, and its successor may be at work on the same files

    def sleep(seconds: float) -> None:
        while seconds > 0:
            time.sleep(min(seconds, _SLEEP_SECONDS))
            seconds -= _SLEEP_SECONDS
            end_with_node()

    throttle = Throttle(sleep=sleep)

    def on_bytes(size_bytes: int) -> None:
        end_with_node()
        throttle.on_bytes(size_bytes)

    module, _, name = work_name.partition(":")
    work = getattr(import_module(module), name)
    task_type = _types_of(work).task
    files = OsFiles()
    for line in tasks:
        task = msgspec.json.decode(line, type=task_type)
        throttle.bytes_per_second_max = task.bytes_per_second_max
        for event in work(task, files, on_bytes):
            events.write(msgspec.json.encode(event) + b"\n")
            events.flush()
        events.write(_END_OF_TASK)
        events.flush()


if __name__ == "__main__":
    os.nice(19)
    serve(sys.argv[1], sys.stdin.buffer, sys.stdout.buffer, int(sys.argv[2]))
