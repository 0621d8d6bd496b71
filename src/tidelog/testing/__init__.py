"""Real brokers and clusters for tests, a pytest plugin, fault injection, history checking."""

from tidelog.testing.broker import Broker, BrokerError
from tidelog.testing.cluster import Cluster

__all__ = ["Broker", "BrokerError", "Cluster"]
