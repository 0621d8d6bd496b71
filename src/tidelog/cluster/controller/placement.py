"""Which brokers get the replicas of new partitions.

Brokers that are about to stop, and those all of whose log directories are cordoned, get none.
Replicas of one partition go to different racks first, then to different brokers of a rack; brokers
that are not fenced come before those that are, and the first replica, which will lead, is never on
a fenced one. Partitions are dealt out like cards: each begins at the next rack, and each round over
the racks begins at the next broker of its rack, so that leaders are spread evenly. Followers are
shifted against leaders, so that the load of a failed broker falls on many others.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from random import Random

from tidelog.cluster.metadata.image import BrokerImage
from tidelog.protocol.errors import ApiError, ErrorCode


class _Rack:
    __slots__ = ("active", "fenced")

    def __init__(self) -> None:
        self.active: list[int] = []
        self.fenced: list[int] = []

    def order(self, start: int, shift: int) -> list[int]:
        """The rack's brokers in the order in which a partition takes them."""
        return _rotated(self.active, start, shift) + _rotated(self.fenced, start, shift)


def _rotated(brokers: Sequence[int], start: int, shift: int) -> list[int]:
    if not brokers:
        return []
    at = start % len(brokers)
    rest = [*brokers[at + 1 :], *brokers[:at]]
    turn = shift % len(rest) if rest else 0
    return [brokers[at], *rest[turn:], *rest[:turn]]


def place_replicas(
    brokers: Iterable[BrokerImage], partition_count: int, replication_factor: int, random: Random
) -> list[list[int]]:
    """The replicas of each new partition, the preferred leader first."""
    racks: dict[str, _Rack] = {}
    broker_count = 0
    for broker in sorted(filter(can_hold_replicas, brokers), key=lambda broker: broker.broker_id):
        rack = racks.setdefault(broker.rack or "", _Rack())
        (rack.fenced if broker.fenced else rack.active).append(broker.broker_id)
        broker_count += 1
    _check(racks.values(), broker_count, replication_factor)

    # Racks where a leader can be; the others come after them.
    leading = [racks[name] for name in sorted(racks) if racks[name].active]
    following = [racks[name] for name in sorted(racks) if not racks[name].active]
    first_rack = random.randrange(len(leading))
    first_broker = random.randrange(broker_count)
    placed = []
    for index in range(partition_count):
        turn = (first_rack + index) % len(leading)
        rotation = [*leading[turn:], *leading[:turn], *following]
        round_ = first_broker + index // len(leading)
        queues = [
            rack.order(round_ if position == 0 else round_ + index, round_ // broker_count)
            for position, rack in enumerate(rotation)
        ]
        placed.append(_deal(queues, replication_factor))
    return placed


def can_hold_replicas(broker: BrokerImage) -> bool:
    """Whether new replicas may go there."""
    if broker.in_controlled_shutdown and not broker.fenced:
        return False
    return not broker.log_dirs or not set(broker.log_dirs) <= set(broker.cordoned_log_dirs or ())


def _deal(queues: list[list[int]], count: int) -> list[int]:
    """Takes one broker of each rack in turn until there are enough."""
    replicas: list[int] = []
    depth = 0
    while len(replicas) < count:
        replicas.extend(queue[depth] for queue in queues if depth < len(queue))
        depth += 1
    return replicas[:count]


def _check(racks: Iterable[_Rack], broker_count: int, replication_factor: int) -> None:
    problem = None
    if not any(rack.active for rack in racks):
        problem = "All brokers are currently fenced, or have all their log directories cordoned."
    elif replication_factor > broker_count:
        problem = (
            f"The target replication factor of {replication_factor} cannot be reached because "
            f"only {broker_count} broker(s) are registered or some brokers have all their log "
            "directories cordoned."
        )
    if problem is not None:
        raise ApiError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"Unable to replicate the partition {replication_factor} time(s): {problem}",
        )


def check_assignment(
    replicas: Sequence[int], registered: Iterable[int], replication_factor: int | None = None
) -> None:
    """Refuses replicas that a client chose when they are not distinct, registered brokers."""
    problem = None
    unknown = set(replicas) - set(registered)
    if not replicas:
        problem = "an empty replica list."
    elif unknown:
        problem = f"broker {min(unknown)}, but no such broker is registered."
    elif len(set(replicas)) < len(replicas):
        twice = next(broker for broker in replicas if replicas.count(broker) > 1)
        problem = f"the broker {twice} more than once."
    elif replication_factor is not None and len(replicas) != replication_factor:
        problem = (
            f"a partition with {len(replicas)} replica(s), but this is not consistent with "
            f"previous partitions, which have {replication_factor} replica(s)."
        )
    if problem is not None:
        raise ApiError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"The manual partition assignment includes {problem}",
        )
