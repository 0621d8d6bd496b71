"""Clusters of real nodes."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.server.replication.running_cluster import RunningCluster


@pytest.fixture
def cluster(
    tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Iterator[RunningCluster]:
    """Three nodes; settings by `@pytest.mark.parametrize("cluster", [{...}], indirect=True)`."""
    settings = getattr(request, "param", None)
    cluster = RunningCluster(tmp_path_factory.mktemp("cluster"), settings=settings)
    yield cluster
    cluster.close()
