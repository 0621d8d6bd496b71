"""What several nodes that are started together have set, unless somebody sets it otherwise."""

from __future__ import annotations

_REPLICAS = 3


def replicated_defaults(node_count: int) -> dict[str, str]:
    """Topics have up to three replicas, of which two have to acknowledge a write with acks=all.

    So with three nodes or more the loss of one loses nothing and stops nobody.
    """
    replicas = min(node_count, _REPLICAS)
    return {
        "default.replication.factor": str(replicas),
        "min.insync.replicas": str(max(replicas - 1, 1)),
    }
