"""Clusters of real nodes."""

from tests.server.replication.conftest import cluster as cluster
