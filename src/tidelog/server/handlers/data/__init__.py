"""Handlers of the data path."""
