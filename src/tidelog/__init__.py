"""Tidelog: a Kafka-class commit log and message queue in Python."""

__version__ = "0.1.0"
