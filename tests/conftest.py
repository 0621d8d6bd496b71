"""Settings that every test shares."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

# The same examples on every run and no deadline: a slow machine must not fail a correct program.
settings.register_profile(
    "tidelog",
    derandomize=True,
    deadline=None,
    max_examples=50,
    suppress_health_check=[HealthCheck.too_slow],
)
# New examples, and many: `make explore`.
settings.register_profile(
    "explore",
    deadline=None,
    max_examples=5000,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "tidelog"))

# Here real programs meet in real time: clients with time-outs of their own, processes that are
# killed, Spark. What is one program and no clock has no second try.
REALTIME = {
    "benchmarks",
    "chaos",
    "cli",
    "client",
    "clients",
    "docs",
    "examples",
    "groups",
    "spark",
    "transactions",
}

_TESTS = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.relative_to(_TESTS).parts[0] in REALTIME:
            item.add_marker("realtime")
        if item.get_closest_marker("realtime") is not None:
            item.add_marker(pytest.mark.flaky(reruns=1))
