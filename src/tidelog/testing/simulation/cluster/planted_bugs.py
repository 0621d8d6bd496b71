"""Deliberate mistakes in clusters, to show that the simulator finds them.

Each is a context manager that makes the real code wrong in one way, as a person might. A test runs
seeds with each of them until one fails; without the bug the same seed is clean.
"""

from __future__ import annotations

from tidelog.testing.simulation.cluster.controller_bugs import CONTROLLER_BUGS
from tidelog.testing.simulation.cluster.coordination_bugs import COORDINATION_BUGS
from tidelog.testing.simulation.cluster.replication_bugs import REPLICATION_BUGS
from tidelog.testing.simulation.planting import Plantation

PLANTED_BUGS = Plantation({**REPLICATION_BUGS, **CONTROLLER_BUGS, **COORDINATION_BUGS})
planted = PLANTED_BUGS.planted

FIRST_SEED = 5
FOUND_WITHIN: dict[str, int] = {
    "commit-without-the-last-in-sync-replica": 10,
    "commit-with-the-proposed-in-sync-set": 10,
    "commit-without-those-who-join": 20,
    "commit-below-min-insync-replicas": 10,
    "take-in-followers-that-lag": 10,
    "take-in-followers-before-the-epoch-start": 60,
    "count-followers-at-the-leaders-end": 10,
    "report-what-is-not-synced": 10,
    "truncate-to-the-high-watermark": 10,
    "append-behind-what-diverges": 10,
    "cut-one-batch-too-few": 40,
    "believe-the-leaders-high-watermark": 40,
    "trust-the-end-of-the-log-after-a-start": 20,
    "forget-producers-on-followers": 40,
    "stamp-no-leader-epoch": 10,
    "obey-images-of-older-epochs": 40,
    "answer-when-the-leader-has-it": 20,
    "serve-what-is-not-committed": 40,
    "tell-the-end-before-the-epoch-start": 20,
    "serve-open-transactions": 20,
    "vote-without-persisting": 40,
    "answer-before-metadata-is-committed": 40,
    "publish-before-the-commit": 40,
    "keep-eligible-leader-replicas": 20,
    "elect-outside-the-in-sync-set": 40,
    "elect-uncleanly-unasked": 40,
    "elect-without-a-new-epoch": 40,
    "leave-partitions-of-a-broker-that-goes": 60,
    "leave-partitions-without-a-leader": 40,
    "let-sessions-last-for-ever": 60,
    "hand-out-producer-ids-twice": 40,
    "answer-before-the-state-is-committed": 10,
    "serve-a-partition-that-has-moved": 20,
    "serve-a-partition-before-it-is-loaded": 10,
    "load-transactions-without-the-last-batch": 20,
    "load-groups-without-the-last-batch": 40,
    "forget-markers-at-takeover": 40,
    "append-without-asking-the-coordinator": 40,
    "forget-partitions-of-a-transaction": 40,
    "let-zombies-go-on": 40,
    "forget-offsets-of-transactions": 40,
    "forget-ends-of-transactions-at-takeover": 10,
}
"""Within how many seeds, from the first on, each is found."""
