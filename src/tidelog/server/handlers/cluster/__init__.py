"""Handlers about brokers, the quorum and features."""
