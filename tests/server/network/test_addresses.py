"""A node that listens on any address tells clients one that they can connect to."""

import socket
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer

from tests.server.running_node import RunningNode
from tidelog.protocol.apis.metadata import MetadataRequest
from tidelog.testing.wire import WireClient
from tidelog.world.operating_system.reachable_host import reachable_host

WAIT_S = 30


@pytest.mark.parametrize("host", ["", "0.0.0.0", "[::]"])
def test_a_client_works_over_the_advertised_address(tmp_path: Path, host: str) -> None:
    node = RunningNode(tmp_path / "data", {"listeners": f"PLAINTEXT://{host}:0"})
    try:
        (address,) = node.node.advertised_addresses
        told_host, _, told_port = address.rpartition(":")
        assert told_host not in ("", "*", "0.0.0.0", "[::]")
        with WireClient("127.0.0.1", int(told_port)) as client:
            (broker,) = client.call(MetadataRequest(topics=[]), 9).brokers
        assert f"{broker.host}:{broker.port}" == address

        producer = Producer({"bootstrap.servers": address})
        producer.produce("hello", b"x")
        assert producer.flush(WAIT_S) == 0
        consumer = Consumer(
            {"bootstrap.servers": address, "group.id": "g", "auto.offset.reset": "earliest"}
        )
        consumer.subscribe(["hello"])
        message = consumer.poll(WAIT_S)
        consumer.close()
        assert message is not None
        assert message.value() == b"x"
    finally:
        node.stop()


@pytest.mark.skipif(not socket.has_dualstack_ipv6(), reason="the machine has no IPv6")
def test_an_empty_host_listens_on_both_versions_of_ip(tmp_path: Path) -> None:
    node = RunningNode(tmp_path / "data", {"listeners": "PLAINTEXT://:0"})
    try:
        for host in ("127.0.0.1", "::1"):
            with socket.create_connection((host, node.port), WAIT_S):
                pass
        with WireClient("127.0.0.1", node.port) as client:
            assert client.call(MetadataRequest(topics=[]), 9).brokers
            peers = node.call(
                lambda: {each.peer_host for each in node.node.connections.all.values()}
            )
        # Quotas and limits of an address are for the address as people write it.
        assert "127.0.0.1" in peers
        assert not any(peer.startswith("::ffff:") for peer in peers)
    finally:
        node.stop()


@pytest.mark.parametrize(("host", "told"), [("127.0.0.1", "127.0.0.1"), ("", reachable_host(""))])
def test_an_empty_advertised_host_follows_the_listener(
    tmp_path: Path, host: str, told: str
) -> None:
    settings = {
        "listeners": f"PLAINTEXT://{host}:0",
        "advertised.listeners": "PLAINTEXT://:19092",
    }
    node = RunningNode(tmp_path / "data", settings)
    try:
        assert node.node.advertised_addresses == [f"{told}:19092"]
    finally:
        node.stop()


def test_a_name_that_does_not_lead_to_the_machine_is_not_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(socket, "gethostname", lambda: "no-such-host.invalid")
    host = reachable_host("")
    with socket.create_server((host, 0)) as server:
        socket.create_connection(server.getsockname(), WAIT_S).close()
    monkeypatch.setattr(socket, "gethostname", lambda: "192.0.2.7")
    assert reachable_host("") == host


def test_other_hosts_are_told_as_they_are() -> None:
    assert reachable_host("127.0.0.1") == "127.0.0.1"
    assert reachable_host("broker.example") == "broker.example"
