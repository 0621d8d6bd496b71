"""Handlers about settings, quotas and client metrics."""
