"""Our own blocking client of a cluster: Spark, the commands and tests talk to brokers with it.

`ClusterClient` makes calls until they are answered or their time is up. Under it, `Cluster` knows
the brokers and makes one attempt: it finds the leader or the coordinator, and says by its errors
whether another attempt is worth making (`retrying`). `WireConnection` is a connection to one broker
with several requests in flight.
"""

from tidelog.client.cluster.client import ClusterClient
from tidelog.client.cluster.cluster import COORDINATOR_GROUP, COORDINATOR_TRANSACTION, Cluster
from tidelog.client.cluster.connection import WireConnection
from tidelog.client.cluster.groups import GroupDescription, GroupMember, Groups
from tidelog.client.cluster.offsets import EARLIEST, LATEST, list_offsets
from tidelog.client.cluster.retrying import (
    ANY_BROKER,
    RETRIABLE,
    RETRY_BACKOFF,
    Retries,
    Stale,
    is_retriable,
    retrying,
    worst_code,
)
from tidelog.client.cluster.topics import Topics
from tidelog.client.cluster.view import Address, ClusterView, Coordinated, PartitionLeader

__all__ = [
    "ANY_BROKER",
    "COORDINATOR_GROUP",
    "COORDINATOR_TRANSACTION",
    "EARLIEST",
    "LATEST",
    "RETRIABLE",
    "RETRY_BACKOFF",
    "Address",
    "Cluster",
    "ClusterClient",
    "ClusterView",
    "Coordinated",
    "GroupDescription",
    "GroupMember",
    "Groups",
    "PartitionLeader",
    "Retries",
    "Stale",
    "Topics",
    "WireConnection",
    "is_retriable",
    "list_offsets",
    "retrying",
    "worst_code",
]
