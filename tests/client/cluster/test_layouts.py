"""Where a topic's partitions are looked up before records are written."""

from __future__ import annotations

import pytest

from tests.client.cluster.scripted_cluster import ScriptedCluster
from tidelog.client.cluster import layouts
from tidelog.client.cluster.layouts import find_layout
from tidelog.client.errors import RetriesExhausted
from tidelog.client.topic_layout import TopicLayout

TWO = TopicLayout("orders", (None, None))
THREE = TopicLayout("orders", (None, None, None))


def test_a_layout_is_asked_for_once_and_shared_with_the_view() -> None:
    script = ScriptedCluster(leaders={0: [0], 1: [1]})
    with script.client() as client:
        layout = find_layout(client.cluster, "orders", 5.0)
        assert layout == TWO
        assert find_layout(client.cluster.sibling(), "orders", 5.0) is layout
    assert script.metadata_count == 1


def test_new_partitions_are_found_when_the_layout_is_old(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(layouts, "_LAYOUT_AGE_S_MAX", -1.0)
    script = ScriptedCluster(leaders={0: [0], 1: [1]})
    with script.client() as client:
        layout = find_layout(client.cluster, "orders", 5.0)
        assert find_layout(client.cluster, "orders", 5.0) is layout
        script.leaders[2] = [0]
        assert find_layout(client.cluster, "orders", 5.0) == THREE


def test_an_old_layout_serves_while_brokers_are_away(monkeypatch: pytest.MonkeyPatch) -> None:
    script = ScriptedCluster(leaders={0: [0], 1: [1]})
    with script.client() as client:
        layout = find_layout(client.cluster, "orders", 5.0)
        for broker in script.brokers:
            broker.stop()
        monkeypatch.setattr(layouts, "_LAYOUT_AGE_S_MAX", -1.0)
        assert find_layout(client.cluster, "orders", 0.1) is layout
        with pytest.raises(RetriesExhausted, match="the partitions of others"):
            find_layout(client.cluster, "others", 0.1)
