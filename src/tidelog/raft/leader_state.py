"""What a leader knows of its epoch: how far everybody is, and who waits for what.

The high watermark is the largest offset that a majority of the voters has on disk:

    sorted by end offset, descending:  9  7  7  4  2     five voters: the third, 7

The leader counts its own log only as far as it is synced. A voter's fetch offset is what it has
synced. Two rules keep that safe:

- Only an offset beyond the start of the leader's own epoch counts. An entry of an older epoch on a
  majority may still be replaced by a leader that has a newer one; with an entry of this epoch on
  top of it, it may not. So the high watermark is unknown at first.
- It never goes back, although a voter may: one that lost its disk, or one that joins.

Check-quorum: a leader that a majority has not fetched from for a while resigns, for it cannot know
whether another one leads already.
"""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

from tidelog.protocol.schema import Message
from tidelog.raft.settings import QuorumSettings
from tidelog.raft.voters import Endpoints, ReplicaKey, VoterSet

OBSERVER_SESSION_TIMEOUT_MS = 300_000
CAUGHT_UP_WITHIN_MS = 3_600_000
NOT_YET = -1


class ReplicaProgress:
    """One replica, as the leader sees it. Times are -1 until there was such a fetch."""

    __slots__ = (
        "_last_fetch_leader_end",
        "end_offset",
        "key",
        "last_caught_up_ms",
        "last_fetch_ms",
    )

    def __init__(self, key: ReplicaKey) -> None:
        self.key = key
        self.end_offset = NOT_YET
        self.last_fetch_ms = NOT_YET
        self.last_caught_up_ms = NOT_YET
        self._last_fetch_leader_end = NOT_YET

    def fetched(self, fetch_offset: int, leader_end_offset: int, now_ms: int) -> None:
        """It is caught up at the time of a fetch of the leader's end, or at the time of the fetch
        before when it now has what was the end then."""
        if fetch_offset >= leader_end_offset:
            self.last_caught_up_ms = now_ms
        elif 0 < self._last_fetch_leader_end <= fetch_offset:
            self.last_caught_up_ms = max(self.last_caught_up_ms, self.last_fetch_ms)
        self._last_fetch_leader_end = leader_end_offset
        self.last_fetch_ms = now_ms
        self.end_offset = fetch_offset


class WaitingFetch(NamedTuple):
    """A fetch that waits for records, or for a higher high watermark."""

    token: object
    request: Message
    key: ReplicaKey
    fetch_offset: int
    deadline_ms: int


class WaitingProposal(NamedTuple):
    """`end_offset` is the offset after its last record: committed means a high watermark >= it."""

    end_offset: int
    token: object


class VoterChange:
    """A change of the voters under way. `end_offset` is None until its record is appended."""

    __slots__ = ("acknowledge", "deadline_ms", "end_offset", "endpoints", "key", "token")

    def __init__(
        self, token: object, key: ReplicaKey, endpoints: Endpoints, deadline_ms: int
    ) -> None:
        self.token: object | None = token  # None once it is answered
        self.key = key
        self.endpoints = endpoints
        self.deadline_ms = deadline_ms
        self.end_offset: int | None = None
        self.acknowledge = True  # when it is committed, not before


class Leader:
    """The role of the leader of `epoch`."""

    __slots__ = (
        "_fetched_voters",
        "_settings",
        "addition",
        "begin_epoch_due_ms",
        "check_quorum_deadline_ms",
        "endpoints",
        "epoch",
        "epoch_start_offset",
        "has_begun",
        "high_watermark",
        "is_resigning",
        "key",
        "leader_id",
        "observers",
        "proposals",
        "removal",
        "volatile_voters",
        "voters",
        "waiting_fetches",
    )

    def __init__(
        self,
        key: ReplicaKey,
        endpoints: Endpoints,
        epoch: int,
        epoch_start_offset: int,
        voters: VoterSet,
        settings: QuorumSettings,
        now_ms: int,
    ) -> None:
        self.key = key
        self.leader_id = key.id
        self.endpoints = endpoints
        self.epoch = epoch
        self.epoch_start_offset = epoch_start_offset
        self.has_begun = False
        """Whether the log has the first record of the epoch: that is written when the leadership
        is on disk, for one that restarts before that may be elected in this epoch again."""
        self.high_watermark: int | None = None
        self.voters = {node.key.id: ReplicaProgress(node.key) for node in voters}
        self.observers: dict[ReplicaKey, ReplicaProgress] = {}
        self.waiting_fetches: list[WaitingFetch] = []
        self.proposals: deque[WaitingProposal] = deque()
        self.addition: VoterChange | None = None
        self.removal: VoterChange | None = None
        self.is_resigning = False
        self.volatile_voters: VoterSet | None = None
        """Voters of the configuration as they have described themselves, until kraft.version 1
        makes them records."""
        self.begin_epoch_due_ms = now_ms
        self.check_quorum_deadline_ms = now_ms + settings.check_quorum_timeout_ms
        self._settings = settings
        self._fetched_voters: set[int] = set()

    # Voters and observers

    def take_voters(self, voters: VoterSet, now_ms: int) -> None:
        """The log names these voters now. What is known of a replica stays known; for the majority
        of the new voters the time begins to run."""
        before, self.voters = self.voters, {}
        for node in voters:
            progress = before.get(node.key.id)
            if progress is None or not _matches(progress.key, node.key):
                progress = self.observers.get(node.key) or ReplicaProgress(node.key)
            else:
                del before[node.key.id]
            self.observers.pop(node.key, None)
            progress.key = node.key
            self.voters[node.key.id] = progress
        for progress in before.values():
            self.observers.setdefault(progress.key, progress)
        self._fetched_voters &= set(self.voters)
        self.check_quorum_deadline_ms = now_ms + self._settings.check_quorum_timeout_ms

    def progress_of(self, key: ReplicaKey) -> ReplicaProgress:
        voter = self.voters.get(key.id)
        if voter is not None and _matches(voter.key, key):
            return voter
        observer = self.observers.get(key)
        if observer is None:
            observer = self.observers[key] = ReplicaProgress(key)
        return observer

    def is_voter(self, key: ReplicaKey) -> bool:
        voter = self.voters.get(key.id)
        return voter is not None and _matches(voter.key, key)

    def is_caught_up(self, key: ReplicaKey, now_ms: int) -> bool:
        observer = self.observers.get(key)
        return (
            observer is not None
            and observer.last_caught_up_ms != NOT_YET
            and observer.last_fetch_ms > now_ms - CAUGHT_UP_WITHIN_MS
        )

    def forget_silent_observers(self, now_ms: int) -> None:
        for key, observer in list(self.observers.items()):
            if key != self.key and now_ms - observer.last_fetch_ms >= OBSERVER_SESSION_TIMEOUT_MS:
                del self.observers[key]

    def followers_by_progress(self) -> list[ReplicaKey]:
        """The voters that could lead next, the most advanced first."""
        others = (each for each in self.voters.values() if each.key.id != self.key.id)
        ranked = sorted(others, key=lambda each: (-each.end_offset, each.key))
        return [each.key for each in ranked]

    # Progress

    def local_synced(self, end_offset: int) -> bool:
        """The own log is on disk up to there; says whether the high watermark moved."""
        progress = self.progress_of(self.key)
        assert end_offset >= progress.end_offset, "a leader's log does not shrink"
        progress.end_offset = end_offset
        return self._advance()

    def fetched(
        self, key: ReplicaKey, fetch_offset: int, leader_end_offset: int, now_ms: int
    ) -> bool:
        """A replica has everything below `fetch_offset` on disk; says whether the high watermark
        moved."""
        if key.id < 0:
            return False
        self.progress_of(key).fetched(fetch_offset, leader_end_offset, now_ms)
        self.heard_of(key, now_ms)
        return self.is_voter(key) and self._advance()

    def heard_of(self, key: ReplicaKey, now_ms: int) -> None:
        """A voter still takes this replica for its leader."""
        if not self.is_voter(key):
            return
        self._fetched_voters.add(key.id)
        others_needed = len(self.voters) // 2 + 1 - (self.key.id in self.voters)
        if len(self._fetched_voters) >= others_needed:
            self._fetched_voters.clear()
            self.check_quorum_deadline_ms = now_ms + self._settings.check_quorum_timeout_ms

    def _advance(self) -> bool:
        ends = sorted((each.end_offset for each in self.voters.values()), reverse=True)
        reached = ends[len(ends) // 2]
        if reached <= self.epoch_start_offset:
            return False
        if self.high_watermark is not None and reached <= self.high_watermark:
            return False
        self.high_watermark = reached
        return True

    def has_quorum_deadline(self) -> bool:
        """A voter alone needs nobody, nor does one that leads only itself out."""
        return len(self.voters) > 1 or self.key.id not in self.voters

    def hears_majority(self, now_ms: int) -> bool:
        """Whether so many voters fetch that something can be committed."""
        heard_ms = self.check_quorum_deadline_ms - self._settings.check_quorum_timeout_ms
        is_recent = now_ms - heard_ms < self._settings.begin_epoch_interval_ms
        return is_recent or not self.has_quorum_deadline()

    def silent_voters(self, now_ms: int) -> list[ReplicaKey]:
        """Voters that may not know who leads."""
        interval_ms = self._settings.begin_epoch_interval_ms
        return [
            each.key
            for each in self.voters.values()
            if each.key.id != self.key.id
            and (each.last_fetch_ms == NOT_YET or now_ms - each.last_fetch_ms >= interval_ms)
        ]


def _matches(known: ReplicaKey, key: ReplicaKey) -> bool:
    return known.id == key.id and (not any(known.directory_id) or known == key)
