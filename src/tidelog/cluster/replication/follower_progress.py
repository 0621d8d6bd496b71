"""What a leader knows of one follower."""

from __future__ import annotations

UNKNOWN_BROKER_EPOCH = -1


class FollowerProgress:
    """How far a follower is, learnt from its fetches.

    A follower has caught up at the time of a fetch that asks for the leader's end as it is now, or
    as it was when the fetch before came in: then it has everything that was there at that time.
    """

    __slots__ = (
        "_last_fetch_leader_end_offset",
        "_last_fetch_ms",
        "broker_epoch",
        "broker_id",
        "is_joining",
        "last_caught_up_ms",
        "log_end_offset",
        "log_start_offset",
    )

    def __init__(self, broker_id: int) -> None:
        self.broker_id = broker_id
        self.broker_epoch = UNKNOWN_BROKER_EPOCH
        """That of the life in which it fetched last."""
        self.log_end_offset = -1  # unknown until its first fetch
        self.log_start_offset = -1
        self.last_caught_up_ms = 0
        self.is_joining = False
        """Not in sync yet, but caught up and allowed to be: the high watermark waits for it, or it
        would run away from a follower that is always one fetch behind."""
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
        self,
        fetch_offset: int,
        log_start_offset: int,
        leader_end_offset: int,
        now_ms: int,
        broker_epoch: int = UNKNOWN_BROKER_EPOCH,
    ) -> None:
        """The follower has everything below `fetch_offset` durable."""
        if fetch_offset >= leader_end_offset:
            self.last_caught_up_ms = max(self.last_caught_up_ms, now_ms)
        elif fetch_offset >= self._last_fetch_leader_end_offset:
            self.last_caught_up_ms = max(self.last_caught_up_ms, self._last_fetch_ms)
        self.log_end_offset = fetch_offset
        self.log_start_offset = log_start_offset
        self.broker_epoch = broker_epoch
        self._last_fetch_leader_end_offset = leader_end_offset
        self._last_fetch_ms = now_ms

    def fetched_nothing_new(self, last_fetch_ms: int) -> None:
        """Until that time the follower fetched, and the partition had nothing that it had not."""
        self.last_caught_up_ms = max(self.last_caught_up_ms, last_fetch_ms)
        self._last_fetch_ms = max(self._last_fetch_ms, last_fetch_ms)

    def is_caught_up(self, leader_end_offset: int, now_ms: int, lag_ms_max: int) -> bool:
        return (
            self.log_end_offset == leader_end_offset
            or now_ms - self.last_caught_up_ms <= lag_ms_max
        )
