"""Fixed schedules of the quorum: a few hundred here, a million with `make simulate-consensus`."""

import subprocess
import sys
from functools import lru_cache

import pytest

from tidelog.testing.simulation.consensus.exploration import run_schedules
from tidelog.testing.simulation.consensus.planted_bugs import FOUND_WITHIN, PLANTED_BUGS
from tidelog.testing.simulation.consensus.schedule import run_schedule
from tidelog.testing.simulation.exploration import Findings

SCHEDULES = range(400)

# What a few hundred schedules must have met.
STRUCK = [
    "appends refused",
    "disks replaced",
    "elections won",
    "full disks",
    "kills",
    "kraft.version raised",
    "leaders isolated after a change",
    "links to the leader cut",
    "messages cut off",
    "messages lost",
    "nodes cut off for good",
    "old voters asked",
    "partitions: bridge",
    "partitions: inbound",
    "partitions: isolate",
    "partitions: outbound",
    "partitions: split",
    "pauses",
    "power cuts",
    "power cuts after a vote",
    "proposals failed",
    "resignations",
    "slow syncs",
    "snapshots installed",
    "snapshots made",
    "stragglers",
    "voters to add",
    "voters to remove",
]


@lru_cache(maxsize=1)
def findings() -> Findings:
    return run_schedules(SCHEDULES)


def test_schedules_are_clean() -> None:
    assert findings().seeds == len(SCHEDULES)
    for failure in findings().failures:
        pytest.fail(
            f"seed {failure.seed} ({failure.options}):\n" + "\n".join(failure.what) + "\n"
            f"repeat: tidelog simulate --consensus --seed {failure.seed} --trace"
        )


def test_schedules_have_met_every_kind_of_fault() -> None:
    counts = findings().counts
    assert [name for name in STRUCK if not counts[name]] == []
    assert counts["proposals committed"] > 5 * len(SCHEDULES)


def test_there_are_enough_planted_bugs() -> None:
    assert len(PLANTED_BUGS) >= 12


@pytest.mark.parametrize("name", PLANTED_BUGS)
def test_planted_bug_is_found(name: str) -> None:
    # Clean without a bug: the schedules above, and the million.
    found = run_schedules(range(FOUND_WITHIN[name]), keep_going=False, bug=name)
    assert found.failures, f"{name} was not found in {found.seeds} schedules"
    assert run_schedule(found.failures[0].seed).is_good


def test_a_seed_has_the_same_trace_in_another_process() -> None:
    script = (
        "from tidelog.testing.simulation.consensus.schedule import run_schedule\n"
        "print([run_schedule(seed, keeps_trace=True).trace_digest for seed in range(12)])"
    )
    command = [sys.executable, "-c", script]
    digests = {
        subprocess.run(
            command, env={"PYTHONHASHSEED": seed, "PYTHONPATH": ":".join(sys.path)},
            capture_output=True, text=True, check=True,
        ).stdout
        for seed in ("1", "2")
    }  # fmt: skip
    here = [run_schedule(seed, keeps_trace=True).trace_digest for seed in range(12)]
    assert digests == {f"{here}\n"}
