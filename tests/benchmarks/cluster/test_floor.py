"""The bare loops of replication do what they are compared for."""

from benchmarks.cluster import floor
from benchmarks.scenarios import Sizes


def test_three_copies_are_written_and_what_they_cost_is_told_apart() -> None:
    figures = floor.measure(Sizes(bulk_records=8_000, fsync_records=4_000))
    for name in ("raw produce", "raw fsync"):
        whole = figures[f"{name}, CPU s/GB"]
        leader = figures[f"{name}, leader's CPU s/GB"]
        follower = figures[f"{name}, a follower's CPU s/GB"]
        assert leader > 0
        assert follower > 0
        assert abs(whole - leader - 2 * follower) < whole / 100
