"""Each workload finds nothing wrong with the node as it is, and finds a bug that is planted."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from itertools import count, islice
from typing import Any

import pytest
from tidelog.cluster.controller.controller import Controller

from tidelog.cluster.replication.partition import Partition
from tidelog.coordinator.transaction_shard import TransactionShard
from tidelog.server.coordination.shard_host import HostedShard
from tidelog.storage.compaction.key_offsets import KeyOffsets
from tidelog.storage.log import Log
from tidelog.testing.simulation.exploration import run_seed_guarded
from tidelog.testing.simulation.options import Options
from tidelog.testing.simulation.simulation import Simulation

Plant = Callable[[pytest.MonkeyPatch], None]

_SEEDS_OF_EACH = 5
_SEEDS_UNTIL_FOUND_MAX = 60
_WORKLOADS = (
    "producers",
    "transactional_ids",
    "classic_members",
    "consumer_members",
    "compacted_partitions",
    "plain_producers",
    "changing_topics",
)


def seeds_with(workload: str) -> Iterator[int]:
    """Seeds whose scenario has this workload."""
    for seed in count():
        options = Options.draw(Simulation(seed).random("options"))
        if getattr(options, workload):
            yield seed


@pytest.mark.parametrize("workload", _WORKLOADS)
def test_nothing_is_wrong(workload: str) -> None:
    for seed in islice(seeds_with(workload), _SEEDS_OF_EACH):
        result = run_seed_guarded(seed)
        assert result.is_good, f"seed {seed} ({result.options}): {result.failures}"


_DIGESTS = """
import sys
from tidelog.testing.simulation.exploration import run_seed_guarded

for seed in map(int, sys.argv[1:]):
    print(run_seed_guarded(seed).trace_digest)
"""


def test_a_seed_gives_the_same_trace_in_another_process() -> None:
    seeds = sorted({next(seeds_with(workload)) for workload in _WORKLOADS})
    digests = [run_seed_guarded(seed).trace_digest for seed in seeds]
    for hash_seed in ("1", "2"):
        told = subprocess.run(
            [sys.executable, "-c", _DIGESTS, *map(str, seeds)],
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            capture_output=True,
            text=True,
            check=True,
        )
        assert told.stdout.split() == digests


def show_uncommitted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Partition, "last_stable_offset", property(lambda self: self.high_watermark))


def time_out_no_transaction(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(TransactionShard, "_set_timer", lambda self, current: None)


def answer_before_the_records_are_committed(monkeypatch: pytest.MonkeyPatch) -> None:
    def deliver(self: HostedShard[Any], replies: Any, effects: Any) -> None:
        self._deliver(replies, effects)

    monkeypatch.setattr(HostedShard, "_when_committed", deliver)


def drop_every_last_value(monkeypatch: pytest.MonkeyPatch) -> None:
    put = KeyOffsets.put
    monkeypatch.setattr(KeyOffsets, "put", lambda self, key, offset: put(self, key, offset + 1))


def acknowledge_before_the_sync(monkeypatch: pytest.MonkeyPatch) -> None:
    append = Log.append_as_leader

    def append_and_claim(self: Log, *args: Any, **options: Any) -> Any:
        result = append(self, *args, **options)
        self.mark_durable(self.log_end_offset)
        return result

    monkeypatch.setattr(Log, "append_as_leader", append_and_claim)


def delete_no_topic(monkeypatch: pytest.MonkeyPatch) -> None:
    delete = Controller.delete_topics

    def pretend(self: Controller, *args: Any, **options: Any) -> Any:
        decision = delete(self, *args, **options)
        decision.records.clear()
        return decision

    monkeypatch.setattr(Controller, "delete_topics", pretend)


@pytest.mark.parametrize(
    ("workload", "plant", "expected"),
    [
        ("transactional_ids", show_uncommitted, "aborted read in transacted"),
        ("transactional_ids", time_out_no_transaction, "not enough for the last readers: txn"),
        ("classic_members", answer_before_the_records_are_committed, "-group is at"),
        ("consumer_members", answer_before_the_records_are_committed, "-group is at"),
        ("compacted_partitions", drop_every_last_value, "compacted-0 says"),
        ("plain_producers", acknowledge_before_the_sync, "plain-"),
        ("producers", acknowledge_before_the_sync, "topic-"),
        ("changing_topics", acknowledge_before_the_sync, "changing-"),
        ("changing_topics", delete_no_topic, "TOPIC_ALREADY_EXISTS"),
    ],
)
def test_a_planted_bug_is_found(
    workload: str, plant: Plant, expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch)
    found = []
    for seed in islice(seeds_with(workload), _SEEDS_UNTIL_FOUND_MAX):
        failures = run_seed_guarded(seed).failures
        if any(expected in failure for failure in failures):
            return
        found += failures
    pytest.fail(f"{_SEEDS_UNTIL_FOUND_MAX} seeds have found only {found}")
