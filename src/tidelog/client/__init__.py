"""The Python SDK: producer, consumer, admin, partitioners."""
