"""Cluster metadata: records, image, controller, and the partition."""
