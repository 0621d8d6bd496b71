"""The words of access control, with the numbers of the protocol."""

from __future__ import annotations

from enum import IntEnum

# The one resource of the type CLUSTER.
CLUSTER_NAME = "kafka-cluster"


class ResourceType(IntEnum):
    """What access is granted to."""

    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7


class AclOperation(IntEnum):
    """What may be done with a resource; which operations make sense depends on its type."""

    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12
    CREATE_TOKENS = 13
    DESCRIBE_TOKENS = 14
    TWO_PHASE_COMMIT = 15
