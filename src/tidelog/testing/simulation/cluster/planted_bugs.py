"""Deliberate mistakes in clusters, to show that the simulator finds them.

Each is a context manager that makes the real code wrong in one way, as a person might. A test runs
seeds with each of them until one fails; without the bug the same seed is clean.
"""

from __future__ import annotations

from tidelog.testing.simulation.cluster.controller_bugs import CONTROLLER_BUGS
from tidelog.testing.simulation.cluster.coordination_bugs import COORDINATION_BUGS
from tidelog.testing.simulation.cluster.replication_bugs import REPLICATION_BUGS
from tidelog.testing.simulation.planted_bugs import PLANTED_BUGS as NODE_BUGS
from tidelog.testing.simulation.planting import Plantation

_OF_THE_NODE = ("serve-above-high-watermark", "answer-before-metadata-is-committed")

PLANTED_BUGS = Plantation(
    {
        **REPLICATION_BUGS,
        **CONTROLLER_BUGS,
        **COORDINATION_BUGS,
        **{name: NODE_BUGS[name] for name in _OF_THE_NODE},
    }
)
planted = PLANTED_BUGS.planted

FIRST_SEED = 5
FOUND_WITHIN: dict[str, int] = {
    "commit-without-the-last-in-sync-replica": 60,
    "commit-with-the-proposed-in-sync-set": 60,
    "commit-without-those-who-join": 60,
    "commit-below-min-insync-replicas": 60,
    "take-in-followers-that-lag": 60,
    "take-in-followers-before-the-epoch-start": 400,
    "count-followers-at-the-leaders-end": 120,
    "report-what-is-not-synced": 60,
    "truncate-to-the-high-watermark": 60,
    "append-behind-what-diverges": 60,
    "cut-one-batch-too-few": 60,
    "believe-the-leaders-high-watermark": 60,
    "trust-the-end-of-the-log-after-a-start": 60,
    "forget-producers-on-followers": 60,
    "keep-producers-over-a-truncation": 60,
    "keep-producers-of-an-emptied-log": 60,
    "stamp-no-leader-epoch": 60,
    "obey-images-of-older-epochs": 60,
    "answer-when-the-leader-has-it": 60,
    "serve-above-high-watermark": 60,
    "tell-the-end-before-the-epoch-start": 120,
    "serve-open-transactions": 60,
    "vote-without-persisting": 60,
    "answer-before-metadata-is-committed": 120,
    "publish-before-the-commit": 60,
    "keep-what-did-not-commit": 60,
    "follow-the-metadata-before-the-commit": 60,
    "accept-isr-changes-at-old-partition-epochs": 60,
    "accept-isr-changes-of-leaders-before": 120,
    "forget-eligible-leader-replicas": 60,
    "keep-eligible-leader-replicas": 60,
    "elect-outside-the-in-sync-set": 60,
    "elect-fenced-brokers": 60,
    "elect-uncleanly-unasked": 60,
    "elect-without-a-new-epoch": 60,
    "leave-partitions-of-a-broker-that-goes": 60,
    "leave-partitions-without-a-leader": 60,
    "let-sessions-last-for-ever": 60,
    "hand-out-producer-ids-twice": 60,
    "answer-before-the-state-is-committed": 60,
    "serve-a-partition-that-has-moved": 60,
    "serve-a-partition-before-it-is-loaded": 60,
    "load-transactions-without-the-last-batch": 60,
    "load-groups-without-the-last-batch": 60,
    "forget-markers-at-takeover": 120,
    "take-markers-as-written-that-nobody-answers": 60,
    "write-markers-before-the-decision-is-committed": 60,
    "take-markers-of-deposed-coordinators": 60,
    "append-without-asking-the-coordinator": 60,
    "forget-partitions-of-a-transaction": 60,
    "let-zombies-go-on": 60,
    "forget-offsets-of-transactions": 60,
    "forget-ends-of-transactions-at-takeover": 60,
}
"""Within how many seeds, from the first on, each is found."""
