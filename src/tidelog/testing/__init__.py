"""A real broker for tests, a pytest plugin, fault injection, history checking."""

from tidelog.testing.broker import Broker, BrokerError

__all__ = ["Broker", "BrokerError"]
