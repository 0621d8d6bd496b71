"""Handlers about groups and their offsets."""
