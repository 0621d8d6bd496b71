"""What a leader knows of one follower."""

from __future__ import annotations


class FollowerProgress:
    """How far a follower is, learnt from its fetches.

    A follower has caught up at the time of a fetch that asks for the leader's end as it is now, or
    as it was when the fetch before came in: then it has everything that was there at that time.
    """

    __slots__ = (
        "_last_fetch_leader_end_offset",
        "_last_fetch_ms",
        "broker_id",
        "last_caught_up_ms",
        "log_end_offset",
        "log_start_offset",
    )

    def __init__(self, broker_id: int) -> None:
        self.broker_id = broker_id
        self.log_end_offset = -1  # unknown until its first fetch
        self.log_start_offset = -1
        self.last_caught_up_ms = 0
        self._last_fetch_leader_end_offset = 0
        self._last_fetch_ms = 0

    def reset(self, now_ms: int, leader_end_offset: int, *, is_in_sync: bool) -> None:
        """A new leader epoch: an in-sync follower gets the benefit of the doubt."""
        self.log_end_offset = -1
        self.log_start_offset = -1
        self.last_caught_up_ms = now_ms if is_in_sync else 0
        self._last_fetch_leader_end_offset = leader_end_offset
        self._last_fetch_ms = now_ms if is_in_sync else 0

    def record_fetch(
        self, fetch_offset: int, log_start_offset: int, leader_end_offset: int, now_ms: int
    ) -> None:
        """The follower has everything below `fetch_offset` durable."""
        if fetch_offset >= leader_end_offset:
            self.last_caught_up_ms = max(self.last_caught_up_ms, now_ms)
        elif fetch_offset >= self._last_fetch_leader_end_offset:
            self.last_caught_up_ms = max(self.last_caught_up_ms, self._last_fetch_ms)
        self.log_end_offset = fetch_offset
        self.log_start_offset = log_start_offset
        self._last_fetch_leader_end_offset = leader_end_offset
        self._last_fetch_ms = now_ms

    def is_caught_up(self, leader_end_offset: int, now_ms: int, lag_ms_max: int) -> bool:
        return (
            self.log_end_offset == leader_end_offset
            or now_ms - self.last_caught_up_ms <= lag_ms_max
        )
