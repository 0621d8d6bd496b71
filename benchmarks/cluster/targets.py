"""What clusters are measured against, and what the page says beside the figures."""

from benchmarks.cluster.scenarios import PARTITIONS
from benchmarks.report import Page, Target

_THROUGHPUT = ("produce", f"produce to {PARTITIONS} partitions", "raw produce")
_WITH_FSYNC = ("fsync", f"fsync to {PARTITIONS} partitions", "raw fsync")

TARGETS: dict[str, Target] = {
    **{f"{name}, MB/s": Target("ratio", "≥", 1.5) for name in (*_THROUGHPUT, *_WITH_FSYNC)},
    **{f"{name}, CPU s/GB": Target("ratio", "≤", 0.4) for name in (*_THROUGHPUT, *_WITH_FSYNC)},
    "at 20 MB/s, p99 ms": Target("value", "≤", 10),
    "one at a time, p50 ms": Target("ratio", "≤", 1.0),
    "fsync, one at a time, p50 ms": Target("ratio", "≤", 1.0),
    "idle, memory of three nodes, MB": Target("value", "≤", 200),
    "idle, busiest node, % of a core": Target("value", "≤", 2),
    "throughput beside 6000 replicas / before": Target("value", "≥", 0.8),
    "a follower catches up, MB/s": Target("value", "≥", 300),
    "restart under load, failed requests": Target("value", "≤", 0),
    "restart under load, longest wait, ms": Target("value", "≤", 300),
    "kill -9 of a leader to the next acknowledged write, s": Target("value", "≤", 1.5),
    "kill -9 of a node with 1000 leaders, all led again, s": Target("value", "≤", 3),
}

PAGE = Page(
    name="cluster",
    plot="cluster",
    title="Results of clusters",
    set_up=(
        "Two clusters of three nodes are up, one idle while the other is measured, and the client "
        "shares the machine with them. Topics have three replicas and `min.insync.replicas=2`; "
        "every write has `acks=all`."
    ),
    notes=(
        "CPU is that of the three nodes together, or of the leader and of one follower. Kafka "
        "hears of a broker that was killed when its session times out, after 9 s by default."
    ),
)
