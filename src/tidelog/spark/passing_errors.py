"""Broker errors that pass by themselves: who asks again, soon, is answered.

Each set is one reason for which an error passes. Who asks brokers puts together the reasons that
its own requests can meet; any other error fails at once, because waiting would only hide it.
"""

from tidelog.protocol.errors import ErrorCode

# The broker has too much to do, stops, or has lost a disk that another replica still has.
BROKER_IN_TROUBLE = frozenset(
    {
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.BROKER_NOT_AVAILABLE,
        ErrorCode.KAFKA_STORAGE_ERROR,
    }
)

# A topic was made a moment ago: not every broker has heard of it, or it has no leader yet.
TOPIC_IS_NEW = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.LEADER_NOT_AVAILABLE,
    }
)

# The leader of a partition moves or starts, or one side has not heard yet who it is.
LEADER_MOVES = TOPIC_IS_NEW | {
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.REPLICA_NOT_AVAILABLE,
    ErrorCode.FENCED_LEADER_EPOCH,
    ErrorCode.UNKNOWN_LEADER_EPOCH,
    # A new leader does not know the high watermark before a follower has asked it.
    ErrorCode.OFFSET_NOT_AVAILABLE,
}

# The coordinator of a group or a transactional id moves, or reads its log.
COORDINATOR_MOVES = frozenset(
    {
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
    }
)

# A write waits for replicas that are away.
REPLICAS_ARE_AWAY = frozenset(
    {
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    }
)
