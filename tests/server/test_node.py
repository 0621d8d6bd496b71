"""A node's life: start, restart, clean stop, start that fails."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.server.batches import batch, fetch_request, produce, produce_request, rows, values
from tests.server.running_node import RunningNode
from tidelog.errors import TidelogError
from tidelog.protocol.api_keys import ApiKey
from tidelog.protocol.apis.api_versions import ApiVersionsRequest
from tidelog.protocol.apis.metadata import MetadataRequest, MetadataRequestTopic
from tidelog.server.configuration.node_config import NodeConfig
from tidelog.server.handler import load_handlers
from tidelog.server.node import Node
from tidelog.testing.wire import WireClient
from tidelog.world.operating_system import OperatingSystem

StartNode = Callable[..., RunningNode]


def test_everything_is_there_after_a_restart(start_node: StartNode) -> None:
    node = start_node()
    topic_id = node.create_topic("kept", 2, retention_ms="-1")
    with node.client() as client:
        for number in range(10):
            produce(client, "kept", b"%d" % number, partition=number % 2)
    cluster_id = node.node.cluster_id
    node.stop()

    again = start_node()
    assert again.node.store.stopped_cleanly
    assert again.node.cluster_id == cluster_id
    assert again.node.image.topics_by_name["kept"].topic_id == topic_id
    assert again.node.image.topic_configs("kept") == {"retention.ms": "-1"}
    with again.client() as client:
        found = rows(client.call(fetch_request("kept", {0: 0, 1: 0}), 12))
        assert values(found[0]) == [b"0", b"2", b"4", b"6", b"8"]
        assert values(found[1]) == [b"1", b"3", b"5", b"7", b"9"]
        assert produce(client, "kept", b"more") == 5


def test_a_stop_finishes_what_is_under_way(start_node: StartNode) -> None:
    node = start_node()
    node.create_topic("under-way")
    waiting = node.client()
    waiting.send(fetch_request("under-way", {0: 0}, max_wait_ms=30_000, min_bytes=10**6), 12)
    producer = node.client()
    frames = [producer.frame(produce_request("under-way", {0: batch(b"x")}), 9) for _ in range(100)]
    producer.socket.sendall(b"".join(frames))
    # The first answer tells that all of them, sent at once, are being worked on.
    producer.receive()
    node.node.request_stop()
    node.node.request_stop()
    assert rows(waiting.receive()[1])[0].error_code == 0
    node.stop()
    with pytest.raises(OSError, match="refused"):
        socket.create_connection((node.host, node.port), 5)

    again = start_node()
    with again.client() as client:
        assert rows(client.call(fetch_request("under-way", {0: 0}), 12))[0].high_watermark > 0


def test_metadata_tells_where_the_node_listens(start_node: StartNode) -> None:
    node = start_node(
        {
            "listeners": "PLAINTEXT://127.0.0.1:0,OUTSIDE://127.0.0.1:0",
            "advertised.listeners": "OUTSIDE://broker.example:19092",
            "rack": "r1",
        }
    )
    addresses = node.node.addresses
    assert len({port for _, port in addresses}) == 2
    (inside_host, inside_port), (outside_host, outside_port) = addresses
    with WireClient(inside_host, inside_port) as inside:
        (broker,) = inside.call(MetadataRequest(topics=[]), 9).brokers
        assert (broker.host, broker.port, broker.rack) == (inside_host, inside_port, "r1")
    with WireClient(outside_host, outside_port) as outside:
        (broker,) = outside.call(MetadataRequest(topics=[]), 9).brokers
        assert (broker.host, broker.port) == ("broker.example", 19092)


def test_api_versions_tells_exactly_what_the_handlers_declare(start_node: StartNode) -> None:
    with start_node().client() as client:
        answer = client.call(ApiVersionsRequest(), 0)
    told = {row.api_key: (row.min_version, row.max_version) for row in answer.api_keys}
    declared = load_handlers()
    for key, versions in told.items():
        assert versions == (declared[key].min_version, declared[key].max_version)
    hidden = declared.keys() - told.keys()
    assert hidden <= {ApiKey.GET_TELEMETRY_SUBSCRIPTIONS, ApiKey.PUSH_TELEMETRY}
    assert told[ApiKey.PRODUCE][0] == 0


def test_features_with_a_minimum_of_0_are_told_from_version_4_on(start_node: StartNode) -> None:
    request = ApiVersionsRequest(client_software_name="test", client_software_version="1.0")
    with start_node().client() as client:
        old, new = client.call(request, 3), client.call(request, 4)
        assert all(feature.min_version > 0 for feature in old.supported_features)
        assert {feature.name for feature in new.supported_features} > {
            feature.name for feature in old.supported_features
        }
        assert {feature.name for feature in old.finalized_features} >= {"metadata.version"}
        assert old.finalized_features_epoch >= 0
        request.client_software_name = "-not a name-"
        assert client.call(request, 3).error_code == 42


def test_api_versions_tells_the_levels_of_every_feature(start_node: StartNode) -> None:
    request = ApiVersionsRequest(client_software_name="test", client_software_version="1.0")
    with start_node().client() as client:
        old, new = client.call(request, 3), client.call(request, 4)
    supported = {each.name: (each.min_version, each.max_version) for each in new.supported_features}
    assert supported == {
        "eligible.leader.replicas.version": (0, 1),
        "group.version": (0, 1),
        "kraft.version": (0, 1),
        "metadata.version": (7, 30),
        "share.version": (0, 0),
        "streams.version": (0, 0),
        "transaction.version": (0, 2),
    }
    assert [each.name for each in old.supported_features] == ["metadata.version"]
    finalized = {
        each.name: (each.min_version_level, each.max_version_level)
        for each in new.finalized_features
    }
    assert finalized == {
        "eligible.leader.replicas.version": (1, 1),
        "group.version": (1, 1),
        "kraft.version": (1, 1),
        "metadata.version": (30, 30),
        "transaction.version": (2, 2),
    }


def finalized_features(node: RunningNode) -> dict[str, int]:
    request = ApiVersionsRequest(client_software_name="test", client_software_version="1.0")
    answer = node.client().call(request, 4)
    return {each.name: each.max_version_level for each in answer.finalized_features}


def test_the_first_start_decides_the_levels_and_later_ones_leave_them(
    start_node: StartNode, capfd: pytest.CaptureFixture[str]
) -> None:
    chosen = {"initial.metadata.version": "3.3-IV3"}
    node = start_node(chosen)
    assert finalized_features(node) == {"metadata.version": 7, "kraft.version": 1}
    with node.client() as client:
        client.call(MetadataRequest(topics=[MetadataRequestTopic(name="old")]), 9)
        assert produce(client, "old", b"x") == 0
    node.stop()
    again = start_node({"initial.metadata.version": "4.3", "logging.level": "warning"})
    assert finalized_features(again) == {"metadata.version": 7, "kraft.version": 1}
    assert "initial_levels_ignored" in capfd.readouterr().err
    with again.client() as client:
        assert produce(client, "old", b"y") == 1
        assert rows(client.call(fetch_request("old", {0: 0}), 12))[0].high_watermark == 2
    again.stop()
    two = {"log.dirs": f"{again.data},{again.data}-2", "logging.level": "off"}
    with pytest.raises(TidelogError, match=r"metadata\.version 3\.3-IV3\. Need 3\.7-IV2"):
        start_node(two)


def test_a_topic_that_is_asked_for_comes_to_be(start_node: StartNode) -> None:
    node = start_node({"num.partitions": "3"})
    with node.client() as client:
        (topic,) = client.call(MetadataRequest(topics=[MetadataRequestTopic(name="new")]), 9).topics
        assert (topic.error_code, len(topic.partitions)) == (0, 3)
        assert produce(client, "new", b"x", partition=2) == 0


def test_a_second_node_on_the_same_data_is_refused(start_node: StartNode, tmp_path: Path) -> None:
    start_node()
    second = Node(
        NodeConfig({"log.dirs": str(tmp_path / "data"), "listeners": "PLAINTEXT://127.0.0.1:0"}),
        OperatingSystem(),
    )
    with pytest.raises(TidelogError, match="in use by another node"):
        second.start()


def test_a_port_in_use_is_named_and_leaves_nothing_open(
    start_node: StartNode, tmp_path: Path
) -> None:
    node = start_node()
    settings = {
        "log.dirs": str(tmp_path / "other"),
        "listeners": f"PLAINTEXT://127.0.0.1:{node.port}",
    }
    with pytest.raises(TidelogError, match=f"cannot listen on 127.0.0.1:{node.port}"):
        Node(NodeConfig(settings), OperatingSystem()).start()
    # The data directory was let go: another node can have it.
    start_node(data=tmp_path / "other")


def test_settings_changed_on_the_wire_reach_the_logs(start_node: StartNode) -> None:
    from tidelog.protocol.apis.incremental_alter_configs import (
        AlterableConfig,
        AlterConfigsResource,
        IncrementalAlterConfigsRequest,
    )

    node = start_node()
    node.create_topic("changed")
    with node.client() as client:
        for kind, name, key, value in (
            (2, "changed", "segment.bytes", "2000000"),
            (4, "", "log.retention.ms", "4711"),
        ):
            resource = AlterConfigsResource(
                resource_type=kind,
                resource_name=name,
                configs=[AlterableConfig(name=key, config_operation=0, value=value)],
            )
            answer = client.call(IncrementalAlterConfigsRequest(resources=[resource]), 1)
            assert answer.responses[0].error_code == 0
    partition = node.node.partitions.get("changed", 0)
    assert partition is not None
    assert partition.log.config.segment_bytes == 2_000_000
    assert partition.log.config.retention_ms == 4711


def test_two_nodes_live_in_one_process(start_node: StartNode, tmp_path: Path) -> None:
    first, second = start_node(), start_node(data=tmp_path / "second")
    first.create_topic("mine")
    with first.client() as one, second.client() as two:
        produce(one, "mine", b"x")
        answer = two.call(
            MetadataRequest(
                topics=[MetadataRequestTopic(name="mine")], allow_auto_topic_creation=False
            ),
            9,
        )
        assert answer.topics[0].error_code == 3


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_stops_the_process_cleanly_and_a_second_one_changes_nothing(
    number: signal.Signals, tmp_path: Path
) -> None:
    script = (
        "import sys\n"
        "from tidelog.server.configuration.node_config import NodeConfig\n"
        "from tidelog.server.process import run_node\n"
        "config = NodeConfig({'log.dirs': sys.argv[1], 'listeners': 'PLAINTEXT://127.0.0.1:0'})\n"
        "run_node(config, on_ready=lambda node: print('ready', flush=True))\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", script, str(tmp_path / "data")],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
    )
    killer = threading.Timer(60, process.kill)
    killer.start()
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        process.send_signal(number)
        process.send_signal(number)
        _, errors = process.communicate()
    finally:
        killer.cancel()
    assert process.returncode == 0, errors.decode()
    assert b"node_stopped" in errors
    assert b"Traceback" not in errors


def test_metrics_count_what_was_done(start_node: StartNode) -> None:
    node = start_node()
    node.create_topic("counted")
    with node.client() as client:
        for _ in range(3):
            produce(client, "counted", b"x")
        client.call(fetch_request("counted", {0: 0}), 12)
    samples = {
        (sample.name, sample.labels.get("api")): sample.value
        for sample in node.call(node.node.metrics.snapshot)
    }
    assert samples["tidelog_requests_total", "produce"] == 3
    assert samples["tidelog_requests_total", "fetch"] == 1
    assert samples["tidelog_fetch_bytes", None] > 0
    assert samples["tidelog_bytes_sent_from_files", None] > 0
    assert samples["tidelog_requests_in_flight", None] == 0
