"""Handlers about topics and their partitions."""
