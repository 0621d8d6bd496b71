"""The real log store keeps on a simulated disk what it made durable, wherever the power goes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

from tests.storage.store_cases import ORDERS, SMALL, TOPIC_ID, append, values_of
from tidelog.storage.log_config import LogConfig
from tidelog.storage.log_store import LogStore
from tidelog.testing.inline_world import InlineWorld
from tidelog.testing.simulation.disk import DiskFaults, PowerCut, SimulatedDisk

DATA = Path("/data")
OPTIONS = replace(SMALL, journal_file_bytes=32 << 10, journal_first_file_bytes=16 << 10)
CONFIG = LogConfig(segment_bytes=2000, index_interval_bytes=200)


class Run:
    """Appends to one partition through many lives, and knows what must be there."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        faults = DiskFaults(torn_sector=0.1, short_write=0.05)
        self.disk = SimulatedDisk(Random(f"disk {seed}"), directories=[DATA], faults=faults)
        self.sent: list[bytes] = []
        self.durable = 0  # how many of them must survive
        self.cuts = 0
        self.lost = 0  # records that were appended, not durable, and went with the power

    def live(self) -> None:
        """One life, in which the power goes at some operation, or the node is killed."""
        if self.random.random() < 0.9:
            self.disk.end_after_operations(self.random.randint(1, 150))
        try:
            store = self._open()
            for _ in range(self.random.randint(5, 40)):
                self._append(store)
                if self.random.random() < 0.1:
                    store.checkpoint()
        except PowerCut:
            self.cuts += 1
        else:
            self.disk.kill()

    def _open(self) -> LogStore:
        world = InlineWorld(self.disk.files(), now_ms=1000, seed=self.random.getrandbits(32))
        store = LogStore.open([DATA], OPTIONS, world=world, post=lambda call: call())
        log = store.get(ORDERS) or store.create(ORDERS, TOPIC_ID, CONFIG)
        found = values_of(log)
        assert found[: self.durable] == self.sent[: self.durable]
        assert found == self.sent[: len(found)]
        self.lost += len(self.sent) - len(found)
        self.sent = found
        self.durable = log.durable_offset
        store.set_config(ORDERS, CONFIG)
        return store

    def _append(self, store: LogStore) -> None:
        log = store.logs[ORDERS]
        for _ in range(self.random.randint(1, 3)):
            self.sent.append(b"%d " % self.random.getrandbits(32) * self.random.choice((1, 30)))
            append(log, self.sent[-1])
        store.commit()
        assert log.durable_offset == len(self.sent)
        self.durable = log.durable_offset

    def end(self) -> None:
        self.disk.power_cut()
        self._open().close()
        self.disk.power_cut()
        self._open().close()


def run(seed: int) -> Run:
    run = Run(seed)
    for _ in range(5):
        run.live()
    run.end()
    return run


def test_what_the_store_made_durable_survives_power_cuts() -> None:
    runs = [run(seed) for seed in range(50)]
    assert sum(run.cuts for run in runs) > 100
    assert sum(run.lost for run in runs) > 20
    assert sum(run.durable for run in runs) > 1000


def test_a_run_of_the_store_is_the_same_every_time() -> None:
    first, second = run(3), run(3)
    assert first.disk.digest() == second.disk.digest()
    assert first.disk.operations == second.disk.operations


@pytest.mark.parametrize("seed", [354, 618, 658, 933, 960, 1253])
def test_the_topic_id_of_a_recovered_log_outlives_the_journal(seed: int) -> None:
    """Recovery wrote partition.metadata again and nobody synced it: a later cut left it torn."""
    run(seed)
