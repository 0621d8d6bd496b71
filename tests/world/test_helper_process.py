from __future__ import annotations

import os
import queue
import signal
import subprocess
import sys
import time
from pathlib import Path

import msgspec
import pytest

from tests.storage.compaction_history import History
from tidelog.storage.compaction.compaction import (
    CompactedGroup,
    CompactionEnd,
    CompactionEvent,
    CompactionFailure,
    CompactionTask,
    failed_pass,
    run_task,
)
from tidelog.world.operating_system.helper_process import HelperProcess, Throttle

WAIT_S = 30


class Passes:
    """Runs tasks in a helper process and collects what it tells."""

    def __init__(self, **options: float) -> None:
        self.posted: queue.SimpleQueue[CompactionEvent] = queue.SimpleQueue()
        self.process = HelperProcess(run_task, failed_pass, lambda callback: callback(), **options)

    def run(self, task: CompactionTask) -> list[CompactionEvent]:
        self.process.submit(task, self.posted.put)
        events = [self.posted.get(timeout=WAIT_S)]
        while isinstance(events[-1], CompactedGroup):
            events.append(self.posted.get(timeout=WAIT_S))
        return events


@pytest.fixture
def history(tmp_path: Path) -> History:
    history = History(tmp_path)
    for number in range(20):
        history.write((b"k%d" % (number % 2), b"%d" % number), producer_id=number % 3)
    history.write((b"k0", b"never"), producer_id=9, transactional=True)
    history.end_transaction(9, commit=False)
    history.roll()
    return history


def test_a_helper_process_does_the_work(history: History) -> None:
    passes = Passes()
    try:
        assert passes.process.pid is None  # not before there is something to do
        group, end = passes.run(history.task(now_ms=0))
        pid = passes.process.pid
        assert pid is not None
        assert os.getpriority(os.PRIO_PROCESS, pid) > os.getpriority(os.PRIO_PROCESS, 0)
        assert isinstance(group, CompactedGroup)
        assert group.old_base_offsets == (0,)
        assert end == CompactionEnd(22)
        history.swap(group)
        assert [record.value for record in history.committed()] == [b"18", b"19"]
        passes.run(history.task(now_ms=0))
        assert passes.process.pid == pid
    finally:
        passes.process.close()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_a_helper_that_dies_fails_its_pass_and_is_replaced(history: History) -> None:
    passes = Passes()
    try:
        slow = history.task(now_ms=0, bytes_per_second_max=1.0)
        passes.process.submit(slow, passes.posted.put)
        while passes.process.pid is None and passes.posted.empty():
            os.sched_yield()
        assert passes.process.pid is not None
        os.kill(passes.process.pid, signal.SIGKILL)
        failure = passes.posted.get(timeout=WAIT_S)
        assert isinstance(failure, CompactionFailure)
        assert not failure.is_corrupt
    finally:
        passes.process.close()
    passes = Passes()
    try:
        *_, end = passes.run(history.task(now_ms=0))
        assert isinstance(end, CompactionEnd)
    finally:
        passes.process.close()


def test_a_helper_that_talks_nonsense_fails_its_pass_for_good(
    history: History, monkeypatch: pytest.MonkeyPatch
) -> None:
    passes = Passes()
    nonsense = [sys.executable, "-c", "input(); print('nonsense', flush=True)"]
    monkeypatch.setattr(
        passes.process,
        "_start_process",
        lambda: subprocess.Popen(nonsense, stdin=subprocess.PIPE, stdout=subprocess.PIPE),
    )
    try:
        (failure,) = passes.run(history.task(now_ms=0))
        assert isinstance(failure, CompactionFailure)
        assert failure.is_corrupt  # trying again would not help
        monkeypatch.undo()
        *_, end = passes.run(history.task(now_ms=0))
        assert isinstance(end, CompactionEnd)
    finally:
        passes.process.close()


def test_a_helper_does_not_outlive_a_killed_node(history: History, tmp_path: Path) -> None:
    task = tmp_path / "task.json"
    task.write_bytes(msgspec.json.encode(history.task(now_ms=0, bytes_per_second_max=10.0)))
    program = f"""
import msgspec, sys, threading
from tidelog.storage.compaction.compaction import CompactionTask
from tidelog.storage.compaction.compaction import failed_pass, run_task
from tidelog.world.operating_system.helper_process import HelperProcess
process = HelperProcess(run_task, failed_pass, lambda callback: callback())
task = msgspec.json.decode(open({str(task)!r}).read(), type=CompactionTask)
process.submit(task, lambda event: None)
while process.pid is None: pass
print(process.pid, flush=True)
threading.Event().wait()
"""
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE) as node:
        assert node.stdout is not None
        helper = int(node.stdout.readline())
        assert is_alive(helper)
        node.kill()
    deadline = time.monotonic() + WAIT_S
    while is_alive(helper):
        assert time.monotonic() < deadline
        time.sleep(0.02)


def is_alive(pid: int) -> bool:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return stat.rpartition(")")[2].split()[0] != "Z"


def test_what_goes_wrong_in_the_helper_is_told(history: History) -> None:
    task = history.task(now_ms=0)
    content = history.path(0).read_bytes()
    history.path(0).write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    passes = Passes()
    try:
        [damaged] = passes.run(task)
        assert isinstance(damaged, CompactionFailure)
        assert damaged.is_corrupt
        history.path(0).unlink()
        [gone] = passes.run(task)
        assert isinstance(gone, CompactionFailure)
        assert not gone.is_corrupt
    finally:
        passes.process.close()


def test_an_idle_helper_ends_and_comes_back(history: History) -> None:
    passes = Passes(idle_seconds_max=0.0)
    try:
        passes.run(history.task(now_ms=0))
        *_, end = passes.run(history.task(now_ms=0))
        assert isinstance(end, CompactionEnd)
    finally:
        passes.process.close()


def test_the_throttle_waits_for_what_is_above_its_rate() -> None:
    now = 0.0
    slept = []

    def sleep(seconds: float) -> None:
        nonlocal now
        slept.append(seconds)
        now += seconds

    throttle = Throttle(1000.0, monotonic=lambda: now, sleep=sleep)
    throttle.on_bytes(500)
    throttle.on_bytes(1000)
    assert slept == [0.5, 1.0]
    now += 10
    throttle.on_bytes(100)
    assert slept[-1] == pytest.approx(0.1)
