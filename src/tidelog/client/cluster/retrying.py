"""Errors that are worth another try, and how long to go on trying.

There is one list of retriable errors. With each goes what it shows to be out of date: the metadata
(who leads a partition), the coordinator (of a group or a transactional id), or nothing, where the
broker only needs time. A call is routed to the leader of a partition, to a coordinator, or to any
broker. It retries errors that show nothing, or its own route, to be out of date; any other error is
the caller's to judge. So UNKNOWN_TOPIC_OR_PARTITION is retried for a fetch, since a leader that has
just been elected may not know the partition yet, while for an offset commit it is the answer.
"""

import time
from collections import Counter
from collections.abc import Callable, Iterable
from enum import Flag
from typing import TypeVar

from tidelog.client.backoff import Backoff
from tidelog.client.errors import ConnectError, RetriableError, RetriesExhausted
from tidelog.protocol.errors import ErrorCode

T = TypeVar("T")

RETRY_BACKOFF = Backoff(first_s=0.002, longest_s=0.5, jitter=0.2)


class Stale(Flag):
    """What an error shows to be out of date."""

    NOTHING = 0
    METADATA = 1
    COORDINATOR = 2
    EVERYTHING = METADATA | COORDINATOR
    """What the broker led or coordinated may all have moved."""


ANY_BROKER = Stale.COORDINATOR
"""The route of a call to any broker, which may itself ask a coordinator or the controller."""

RETRIABLE: dict[ErrorCode, Stale] = {
    # The broker is stopping, or has lost a disk or its connection to the others.
    ErrorCode.BROKER_NOT_AVAILABLE: Stale.EVERYTHING,
    ErrorCode.NETWORK_EXCEPTION: Stale.EVERYTHING,
    ErrorCode.KAFKA_STORAGE_ERROR: Stale.EVERYTHING,
    # The broker, the controller or the quota of this client needs time.
    ErrorCode.REQUEST_TIMED_OUT: Stale.NOTHING,
    ErrorCode.NOT_CONTROLLER: Stale.NOTHING,
    ErrorCode.THROTTLING_QUOTA_EXCEEDED: Stale.NOTHING,
    # The leader moves, or one side has not heard yet who it is. A topic that was just created is
    # unknown to some brokers, or has no leader yet.
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: Stale.METADATA,
    ErrorCode.UNKNOWN_TOPIC_ID: Stale.METADATA,
    ErrorCode.INCONSISTENT_TOPIC_ID: Stale.METADATA,
    ErrorCode.LEADER_NOT_AVAILABLE: Stale.METADATA,
    ErrorCode.NOT_LEADER_OR_FOLLOWER: Stale.METADATA,
    ErrorCode.REPLICA_NOT_AVAILABLE: Stale.METADATA,
    ErrorCode.LISTENER_NOT_FOUND: Stale.METADATA,
    ErrorCode.FENCED_LEADER_EPOCH: Stale.METADATA,
    ErrorCode.UNKNOWN_LEADER_EPOCH: Stale.METADATA,
    # A new leader does not know the high watermark before a follower has fetched from it.
    ErrorCode.OFFSET_NOT_AVAILABLE: Stale.NOTHING,
    # A write waits for replicas that are not in sync.
    ErrorCode.NOT_ENOUGH_REPLICAS: Stale.NOTHING,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND: Stale.NOTHING,
    # Damaged on its way: the sender has it whole.
    ErrorCode.CORRUPT_MESSAGE: Stale.NOTHING,
    # The coordinator moves, or replays its log.
    ErrorCode.NOT_COORDINATOR: Stale.COORDINATOR,
    ErrorCode.COORDINATOR_NOT_AVAILABLE: Stale.COORDINATOR,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: Stale.NOTHING,
    # A transaction is still being completed.
    ErrorCode.CONCURRENT_TRANSACTIONS: Stale.NOTHING,
    ErrorCode.UNSTABLE_OFFSET_COMMIT: Stale.NOTHING,
}


def is_retriable(code: int, route: Stale = Stale.EVERYTHING) -> bool:
    """Whether a call that was refused may succeed when it is made again.

    `route` is what the call was routed by: METADATA to a leader, COORDINATOR to a coordinator, or
    ANY_BROKER. Without it every retriable error counts.
    """
    stale = RETRIABLE.get(ErrorCode(code))
    return stale is not None and (stale is Stale.NOTHING or bool(stale & route))


def worst_code(codes: Iterable[int], route: Stale) -> int:
    """Of the errors of one answer that decides: one that is not retriable, else any, else 0."""
    refused = [code for code in codes if code]
    fatal = [code for code in refused if not is_retriable(code, route)]
    return next(iter(fatal or refused), 0)


class Retries:
    """The tries of one call, with pauses between them, until a deadline."""

    def __init__(
        self,
        timeout_s: float,
        *,
        backoff: Backoff = RETRY_BACKOFF,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.timeout_s = timeout_s
        self._backoff = backoff
        self._clock = clock
        self._sleep = sleep
        self._reasons: Counter[str] = Counter()
        self.restart()

    def restart(self) -> None:
        """Something succeeded: the deadline, the pauses and the reasons begin from here."""
        self._start_s = self._clock()
        self._reasons.clear()

    @property
    def waited_s(self) -> float:
        """How long nothing has succeeded."""
        return self._clock() - self._start_s

    @property
    def is_over(self) -> bool:
        """Whether the deadline has passed."""
        return self.waited_s >= self.timeout_s

    def wait(self, doing: str, reason: object) -> None:
        """Pause before the next try, until the deadline at most; RetriesExhausted after it."""
        self._reasons[str(reason)] += 1
        left_s = self.timeout_s - self.waited_s
        if left_s <= 0:
            raise RetriesExhausted(
                f"{doing}: no success within {self.timeout_s:g} s; {self.tried(reason)}"
            )
        self._sleep(min(self._backoff.pause_s(self._reasons.total()), left_s))

    def tried(self, last: object) -> str:
        """How often it was tried, with the reasons of the failures and the last one."""
        count = self._reasons.total()
        if count <= 1:
            return f"tried once: {last}"
        if len(self._reasons) == 1:
            return f"tried {count} times: {last}"
        told = ", ".join(f"{reason} ({times}x)" for reason, times in self._reasons.most_common(3))
        return f"tried {count} times: {told}; last: {last}"


def retrying(attempt: Callable[[], T], doing: str, retries: Retries) -> T:
    """The result of the first attempt that ends without RetriableError and ConnectError.

    `doing` says what is tried, for the RetriesExhausted when the deadline has passed.
    """
    while True:
        try:
            return attempt()
        except (ConnectError, RetriableError) as error:
            retries.wait(doing, error)
