"""What a client may do with a resource, as the bit field of the protocol.

Bit n stands for the operation with the number n of Kafka's ACLs. Without an authorizer everybody
may do everything that makes sense for the type of the resource.
"""

from __future__ import annotations

from tidelog.security.acl import AclOperation

NOT_ASKED_FOR = -(2**31)


def bit_field(*operations: AclOperation) -> int:
    """The operations as one number."""
    return sum(1 << operation for operation in operations)


TOPIC_OPERATIONS = bit_field(
    AclOperation.READ,
    AclOperation.WRITE,
    AclOperation.CREATE,
    AclOperation.DELETE,
    AclOperation.ALTER,
    AclOperation.DESCRIBE,
    AclOperation.DESCRIBE_CONFIGS,
    AclOperation.ALTER_CONFIGS,
)
CLUSTER_OPERATIONS = bit_field(
    AclOperation.CREATE,
    AclOperation.ALTER,
    AclOperation.DESCRIBE,
    AclOperation.CLUSTER_ACTION,
    AclOperation.DESCRIBE_CONFIGS,
    AclOperation.ALTER_CONFIGS,
    AclOperation.IDEMPOTENT_WRITE,
)
GROUP_OPERATIONS = bit_field(
    AclOperation.READ,
    AclOperation.DELETE,
    AclOperation.DESCRIBE,
    AclOperation.DESCRIBE_CONFIGS,
    AclOperation.ALTER_CONFIGS,
)
