"""A round of chaos on a cluster of real processes, and that the harness finds what is wrong."""

from __future__ import annotations

import os
import random
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.chaos.cluster import namespaces
from tests.chaos.cluster.compaction import compaction_problems
from tests.chaos.cluster.copying import copy_problems
from tests.chaos.cluster.faults import LANES, Kind, plan_faults
from tests.chaos.cluster.hosts import bridge, isolate, one_way, split
from tests.chaos.cluster.resends import told_apart
from tidelog.protocol.topic_partition import TopicPartition as Place
from tidelog.testing.history import AnomalyKind, Operation, Outcome, Polled, Send, check_history

SOURCES = Path(__file__).resolve().parents[3]
SOURCE, TARGET = Place("sent", 0), Place("copied", 0)
KINDS = frozenset(kind for lane in LANES.values() for kind in lane)


def run(module: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    problem = namespaces.missing()
    if problem is not None:
        pytest.skip(problem)
    return subprocess.run(
        [sys.executable, "-m", f"tests.chaos.cluster.{module}", *arguments],
        cwd=SOURCES,
        env={**os.environ, "PYTHONPATH": str(SOURCES)},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_a_round_of_kills_and_partitions_is_clean(tmp_path: Path) -> None:
    found = run(
        "run",
        *("--rounds", "1", "--seed", "8", "--faults", "kill,pause,isolate,split,one-way"),
        *("--keep", str(tmp_path)),
    )
    assert found.returncode == 0, found.stdout + found.stderr
    assert "1 rounds, 1 clean" in found.stdout


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_records_that_no_disk_has_are_found_lost(tmp_path: Path) -> None:
    """Acknowledged without a sync, and all nodes lose power: the harness says so."""
    if not namespaces.has_loop_devices():
        pytest.skip("Power cuts need root, loop devices and mkfs.ext4 (e2fsprogs).")
    found = run(
        "run",
        *("--rounds", "1", "--seed", "1", "--faults", "power-cut-all", "--span", "4"),
        *("--set", "durability=page-cache", "--keep", str(tmp_path)),
    )
    assert found.returncode == 1, found.stdout + found.stderr
    assert re.search("lost write|unseen|was acknowledged|inconsistent offsets", found.stdout)
    assert "repeat it: " in found.stdout
    (kept,) = tmp_path.iterdir()
    assert (kept / "history.jsonl").stat().st_size > 0
    assert (kept / "data" / "node-1" / "log").is_dir()


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_the_last_replica_standing_loses_power_and_nothing_is_lost() -> None:
    if not namespaces.has_loop_devices():
        pytest.skip("Power cuts need root, loop devices and mkfs.ext4 (e2fsprogs).")
    found = run("last_replica")
    assert found.returncode == 0, found.stdout + found.stderr
    assert "0 of 2000 acknowledged records are lost" in found.stdout


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_writes_go_on_while_the_disk_of_a_leader_is_full() -> None:
    found = run("full_disk")
    assert found.returncode == 0, found.stdout + found.stderr
    assert "0 problems" in found.stdout


def test_the_same_seed_plans_the_same_faults() -> None:
    def plan(seed: int) -> list[str]:
        return list(map(str, plan_faults(random.Random(seed), range(1, 6), 20, KINDS)))

    assert plan(3) == plan(3)
    assert plan(3) != plan(4)


def test_faults_of_one_lane_follow_one_another_and_end_within_the_round() -> None:
    kinds: set[Kind] = set()
    for seed in range(200):
        planned = plan_faults(random.Random(seed), range(1, 4), 15, KINDS)
        assert planned
        kinds.update(fault.kind for fault in planned)
        for lane in LANES:
            free_at_s = 0.0
            for fault in planned:
                if fault.lane == lane:
                    assert fault.at_s >= free_at_s
                    free_at_s = fault.at_s + fault.for_s
                    assert free_at_s <= 15.001
    assert kinds == KINDS


def test_partitions_are_sets_of_who_does_not_hear_whom() -> None:
    hosts = [1, 2, 3]
    assert isolate(1, hosts) == {(1, 2), (2, 1), (1, 3), (3, 1)}
    assert split([1, 2], hosts) == {(1, 3), (3, 1), (2, 3), (3, 2)}
    assert one_way(1, hosts) == {(1, 2), (1, 3)}
    assert bridge(2, [1], hosts) == {(1, 3), (3, 1)}


def sent(value: str, offset: int, place: Place = SOURCE) -> Operation:
    return Operation(value.partition("-")[0], sends=[Send(place, value, offset)])


def test_resends_of_a_producer_with_a_new_epoch_are_told_apart() -> None:
    history = [
        Operation("b", sends=[Send(SOURCE, "b-1", 2)]),
        Operation("tail", polls=[[Polled(SOURCE, at, "b-1") for at in (0, 2)]]),
        Operation("tail", polls=[[Polled(SOURCE, at, "a-1") for at in (3, 4)]]),
    ]
    told, resends = told_apart(history, ["b-"])
    assert resends == 1
    (duplicate,) = check_history(told).of(AnomalyKind.DUPLICATE)
    assert "'a-1'" in duplicate.description
    assert len(check_history(history).of(AnomalyKind.DUPLICATE)) == 2


def test_a_copy_that_is_missing_doubled_or_half_is_found() -> None:
    source = [Polled(SOURCE, at, f"v{at}") for at in range(4)]
    copies = ["v0@1.1", "v1@1.1", "v1@1.2", "v2@1.3"]
    target = [Polled(TARGET, at, value) for at, value in enumerate(copies)]
    half = Operation("copier", Outcome.OK, [Send(TARGET, "v2@1.3"), Send(TARGET, "v3@1.3")])
    problems = "\n".join(copy_problems(source, target, [half]))
    assert "1 records were not copied, among them ['v3']" in problems
    assert "1 records were copied twice, among them ['v1']" in problems
    assert "1 of 2 records of one transaction are there" in problems
    whole = [Polled(TARGET, at, f"v{at}@1.1") for at in range(4)]
    assert copy_problems(source, whole, []) == []


def test_a_key_whose_last_acknowledged_value_is_gone_is_found() -> None:
    operations = [sent(f"w-{number}", number) for number in range(4)]
    kept = [Polled(SOURCE, 2, "w-2"), Polled(SOURCE, 3, "w-3")]
    assert compaction_problems(operations, kept, keys=2) == []
    (problem,) = compaction_problems(operations, [Polled(SOURCE, 2, "w-2")], keys=2)
    assert "key 1 ends with number -1; 3 was acknowledged" in problem
    (problem,) = compaction_problems(operations, [*kept, Polled(SOURCE, 4, "w-0")], keys=2)
    assert "after its number 2" in problem
