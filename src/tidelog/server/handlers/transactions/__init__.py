"""Handlers about producer ids and transactions."""
