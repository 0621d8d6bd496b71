"""A client of a cluster for the calls that librdkafka does not offer, on the protocol alone.

`Cluster` knows the brokers and which of them leads and coordinates what; `WireConnection` is a
blocking connection to one of them.
"""

from tidelog.client.cluster.cluster import COORDINATOR_GROUP, COORDINATOR_TRANSACTION, Cluster
from tidelog.client.cluster.connection import WireConnection

__all__ = ["COORDINATOR_GROUP", "COORDINATOR_TRANSACTION", "Cluster", "WireConnection"]
