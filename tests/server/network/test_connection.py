"""Connections: frames in pieces, lies, limits, slow and silent clients."""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Callable

import pytest

from tests.server.batches import batch, fetch_request, produce, produce_request, rows, values
from tests.server.running_node import RunningNode
from tidelog.protocol.apis.api_versions import ApiVersionsRequest
from tidelog.protocol.apis.metadata import MetadataRequest
from tidelog.protocol.schema import Message
from tidelog.testing.wire import WireClient

pytestmark = pytest.mark.realtime

StartNode = Callable[..., RunningNode]


def _wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline, "it did not come to that"
        time.sleep(0.002)


def _is_served(client: WireClient) -> bool:
    return bool(client.call(ApiVersionsRequest(), 0).error_code == 0)


def test_a_frame_may_come_byte_by_byte(shared_node: RunningNode) -> None:
    with shared_node.client() as client:
        for byte in client.frame(ApiVersionsRequest(), 0):
            client.socket.sendall(bytes([byte]))
        assert client.receive()[1].error_code == 0
        assert _is_served(client)


@pytest.mark.parametrize("piece_bytes", [1, 3, 1000, 65_537])
def test_frames_of_all_sizes_may_be_cut_anywhere(
    shared_node: RunningNode, piece_bytes: int
) -> None:
    topic = f"pieces-{piece_bytes}"
    shared_node.create_topic(topic, durability="page-cache")
    sizes = [10, 700, 10] if piece_bytes < 1000 else [10, 300_000, 5, 70_000, 900_000, 20]
    with shared_node.client() as client:
        data = b"".join(
            client.frame(produce_request(topic, {0: batch(bytes([size % 251]) * size)}), 9)
            for size in sizes
        )
        for start in range(0, len(data), piece_bytes):
            client.socket.sendall(data[start : start + piece_bytes])
        for number in range(len(sizes)):
            row = client.receive()[1].responses[0].partition_responses[0]
            assert (row.error_code, row.base_offset) == (0, number)
        found: list[bytes] = []
        while len(found) < len(sizes):
            found += values(rows(client.call(fetch_request(topic, {0: len(found)}), 12))[0])
        assert found == [bytes([size % 251]) * size for size in sizes]


@pytest.mark.parametrize("claimed_bytes", [-1, -(2**31), 0, 7, 2**31 - 1, 100 * 1024 * 1024 + 1])
def test_a_length_that_cannot_be_ends_the_connection(
    shared_node: RunningNode, claimed_bytes: int
) -> None:
    with shared_node.client() as client:
        client.socket.sendall(struct.pack(">i", claimed_bytes))
        if 0 < claimed_bytes < 8 or claimed_bytes > 8:
            client.socket.sendall(b"\0" * 4)
        assert client.is_ended()


def test_a_length_that_lies_takes_no_memory(shared_node: RunningNode) -> None:
    shared = shared_node.node.connections

    def within_frames() -> int:
        return sum(each._frames.is_within_frame for each in shared.all.values())

    liars = [shared_node.client() for _ in range(20)]
    for liar in liars:
        liar.socket.sendall(struct.pack(">ihhih", 100 * 1024 * 1024, 0, 9, 1, -1) + bytes(100))
    _wait_until(lambda: shared_node.call(within_frames) == 20)
    assert shared_node.call(lambda: shared.memory.buffers_bytes) <= 20 * 64 * 1024
    for liar in liars:
        liar.close()
    _wait_until(lambda: shared_node.call(lambda: shared.memory.buffers_bytes) == 0)
    with shared_node.client() as client:
        assert _is_served(client)


def test_unknown_apis_and_garbage_end_only_their_own_connection(shared_node: RunningNode) -> None:
    with shared_node.client() as good:
        for garbage in (
            struct.pack(">ihhih", 10, 999, 0, 1, -1),
            struct.pack(">ihhih", 10, 3, 99, 1, -1),
            struct.pack(">ihhih", 20, 18, 0, 1, 500) + bytes(10),
            b"GET / HTTP/1.1\r\nHost: broker\r\n\r\n",
            b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(600),
        ):
            with shared_node.client() as bad:
                bad.socket.sendall(garbage)
                bad.socket.shutdown(socket.SHUT_WR)
                assert bad.is_ended()
            assert _is_served(good)


def test_an_unknown_version_of_api_versions_is_answered_in_version_0(
    shared_node: RunningNode,
) -> None:
    from tidelog.protocol.apis.api_versions import ApiVersionsResponse

    with shared_node.client() as client:
        client.socket.sendall(struct.pack(">ihhih", 18, 18, 77, 4711, -1) + bytes(8))
        frame = client.receive_frame()
        assert struct.unpack_from(">i", frame)[0] == 4711
        response = ApiVersionsResponse.decode(frame, 0, 4)
        assert response.error_code == 35
        assert 18 in {row.api_key for row in response.api_keys}
        # The connection is good for the version that the client learned now.
        assert _is_served(client)


def test_a_client_that_does_not_read_is_not_read_from(start_node: StartNode) -> None:
    node = start_node({"socket.send.buffer.bytes": "16384"})
    node.create_topic("unread", durability="page-cache")
    with node.client() as producer:
        for _ in range(8):
            produce(producer, "unread", bytes(500_000))
    reader = node.client(receive_buffer_bytes=4096)
    frames = [
        reader.frame(fetch_request("unread", {0: 0}, partition_max_bytes=4_000_000), 12)
        for _ in range(8)
    ]
    reader.socket.sendall(b"".join(frames))
    connections = node.node.connections

    def outgoing_bytes() -> int:
        # The reader may not have been accepted yet.
        return max((each._outgoing.size_bytes for each in connections.all.values()), default=0)

    _wait_until(lambda: node.call(outgoing_bytes) > 1_000_000)
    # One answer above the limit waits, not eight.
    assert node.call(outgoing_bytes) < 2 * 4_100_000
    with node.client() as other:
        assert _is_served(other)
    for number in range(8):
        correlation_id, response = reader.receive()
        assert correlation_id == number + 1
        assert len(bytes(rows(response)[0].records)) > 3_000_000


def test_a_client_that_never_reads_is_closed(start_node: StartNode) -> None:
    node = start_node({"socket.unread.timeout.ms": "200", "socket.send.buffer.bytes": "16384"})
    node.create_topic("never-read", durability="page-cache")
    with node.client() as producer:
        for _ in range(8):
            produce(producer, "never-read", bytes(500_000))
    reader = node.client(receive_buffer_bytes=4096)
    reader.send(fetch_request("never-read", {0: 0}, partition_max_bytes=4_000_000), 12)
    # That of the topic's creation, the producer's and the reader's.
    _wait_until(lambda: node.node.metrics.connections_closed == 3)
    assert node.node.metrics.connections_open == 0


def test_an_idle_connection_is_closed_and_a_waiting_one_not(start_node: StartNode) -> None:
    node = start_node({"connections.max.idle.ms": "300"})
    node.create_topic("idle")
    idle, waiting = node.client(), node.client()
    assert _is_served(idle)
    waiting.send(fetch_request("idle", {0: 0}, max_wait_ms=1500), 12)
    assert idle.is_ended()
    assert waiting.receive()[1].error_code == 0


def test_connections_are_limited_in_total_and_per_address(start_node: StartNode, tmp_path) -> None:  # type: ignore[no-untyped-def]
    node = start_node({"max.connections": "2"})
    first, second, third = (node.client() for _ in range(3))
    assert _is_served(first)
    assert _is_served(second)
    assert third.is_ended()
    first.close()
    _wait_until(lambda: node.node.metrics.connections_open == 1)
    assert _is_served(node.client())

    other = start_node(
        {"max.connections.per.ip": "5", "max.connections.per.ip.overrides": "127.0.0.1:1"},
        tmp_path / "other",
    )
    assert _is_served(other.client())
    assert other.client().is_ended()
    assert other.node.metrics.connections_refused >= 1


def test_requests_wait_while_too_many_bytes_are_in_flight(start_node: StartNode) -> None:
    node = start_node({"queued.max.request.bytes": "100000"})
    node.create_topic("budget")
    clients = [node.client() for _ in range(4)]
    for client in clients:
        frame = client.frame(produce_request("budget", {0: batch(bytes(30_000))}), 9)
        client.socket.sendall(frame)
        for _ in range(9):
            client.socket.sendall(
                client.frame(produce_request("budget", {0: batch(bytes(30_000))}), 9)
            )
    for client in clients:
        for _ in range(10):
            assert client.receive()[1].responses[0].partition_responses[0].error_code == 0
    assert node.call(lambda: node.node.metrics.in_flight_bytes) == 0
    assert node.call(lambda: node.node.metrics.requests_in_flight) == 0


def test_limits_of_minus_one_are_none(start_node: StartNode) -> None:
    node = start_node({"queued.max.request.bytes": "-1", "connections.max.idle.ms": "-1"})
    node.create_topic("unlimited")
    with node.client() as client:
        data = b"".join(
            client.frame(produce_request("unlimited", {0: batch(bytes(70_000))}), 9)
            for _ in range(20)
        )
        client.socket.sendall(data)
        for number in range(20):
            row = client.receive()[1].responses[0].partition_responses[0]
            assert (row.error_code, row.base_offset) == (0, number)


def test_many_idle_connections_cost_little(start_node: StartNode) -> None:
    node = start_node()
    clients = [node.client() for _ in range(300)]
    _wait_until(lambda: node.node.metrics.connections_open == 300)
    assert _is_served(clients[0])
    assert _is_served(clients[-1])
    for client in clients:
        client.close()
    _wait_until(lambda: node.node.metrics.connections_open == 0)
    assert node.node.connections._per_host == {}


def test_a_half_closed_client_gets_all_its_answers(start_node: StartNode) -> None:
    """As in Kafka, which looks for a stream's end only when it has answered what came before."""
    node = start_node()
    node.create_topic("half-closed")
    for count in (1, 2, 3, 4, 5, 6) * 3:
        with node.client() as client:
            requests: list[tuple[Message, int]] = [
                (produce_request("half-closed", {0: batch(b"x")}, acks=acks), 9)
                for acks in (1, -1, 1)
            ]
            # Requests behind them that have to wait for their answers, and for time.
            requests.append((MetadataRequest(topics=[]), 9))
            long_poll = fetch_request("half-closed", {0: 0}, max_wait_ms=20, min_bytes=10**6)
            requests.append((long_poll, 12))
            requests.append((ApiVersionsRequest(), 0))
            client.socket.sendall(b"".join(client.frame(*each) for each in requests[:count]))
            client.socket.shutdown(socket.SHUT_WR)
            assert [client.receive()[0] for _ in range(count)] == list(range(1, count + 1))
            assert client.is_ended()
    _wait_until(lambda: node.node.metrics.connections_open == 0)
    assert node.node.metrics.requests_in_flight == node.node.metrics.in_flight_bytes == 0


def test_a_half_closed_client_gets_what_the_socket_held_while_it_was_not_read_from(
    shared_node: RunningNode,
) -> None:
    shared_node.create_topic("half-closed-unread")
    with shared_node.client() as client:
        long_poll = fetch_request("half-closed-unread", {0: 0}, max_wait_ms=300, min_bytes=10**6)
        client.socket.sendall(
            client.frame(long_poll, 12) + client.frame(MetadataRequest(topics=[]), 9)
        )
        _wait_until(lambda: shared_node.node.metrics.delayed_fetches == 1)
        # The second request waits, so these stay in the socket.
        for _ in range(3):
            client.send(MetadataRequest(topics=[]), 9)
        client.socket.shutdown(socket.SHUT_WR)
        assert [client.receive()[0] for _ in range(5)] == [1, 2, 3, 4, 5]
        assert client.is_ended()


def test_an_answer_that_takes_several_sends_reaches_a_half_closed_client(
    start_node: StartNode,
) -> None:
    node = start_node({"socket.send.buffer.bytes": "16384"})
    node.create_topic("half-closed-large", durability="page-cache")
    with node.client() as producer:
        for _ in range(4):
            produce(producer, "half-closed-large", bytes(500_000))
    with node.client(receive_buffer_bytes=4096) as client:
        fetch = fetch_request("half-closed-large", {0: 0}, partition_max_bytes=4_000_000)
        client.send(fetch, 12)
        client.socket.shutdown(socket.SHUT_WR)
        assert len(bytes(rows(client.receive()[1])[0].records)) > 2_000_000
        assert client.is_ended()


def test_a_client_that_has_gone_is_not_waited_for_without_end(start_node: StartNode) -> None:
    """Its end looks like that of a client that still reads; what it sent is processed."""
    node = start_node({"socket.unread.timeout.ms": "300"})
    node.create_topic("left")
    metrics = node.node.metrics
    with node.client() as client:
        long_poll = fetch_request("left", {0: 0}, max_wait_ms=2**31 - 1, min_bytes=10**6)
        frames = [client.frame(long_poll, 12) for _ in range(3)]
        frames.insert(2, client.frame(produce_request("left", {0: batch(b"x")}, acks=0), 9))
        client.socket.sendall(b"".join(frames))
        _wait_until(lambda: metrics.delayed_fetches == 1)
    _wait_until(lambda: metrics.delayed_fetches == metrics.requests_in_flight == 0)
    _wait_until(lambda: metrics.connections_open == 0)
    with node.client() as client:
        found = client.call(fetch_request("left", {0: 0}, max_wait_ms=20_000), 12)
        assert values(rows(found)[0]) == [b"x"]


def test_what_a_client_sent_before_it_reset_the_connection_is_processed(
    start_node: StartNode,
) -> None:
    """A consumer that is closed in a hurry commits its offsets, leaves its group and is gone. As in
    Kafka all of that counts, whatever was under way."""
    node = start_node()
    node.create_topic("reset")
    metrics = node.node.metrics
    client = node.client()
    long_poll = fetch_request("reset", {0: 0}, max_wait_ms=2**31 - 1, min_bytes=10**6)
    held = [client.frame(produce_request("reset", {0: batch(value)}), 9) for value in (b"1", b"2")]
    client.socket.sendall(client.frame(long_poll, 12) + b"".join(held))
    _wait_until(lambda: metrics.delayed_fetches == 1)
    # The node holds a request, so these stay in the socket.
    client.socket.sendall(client.frame(MetadataRequest(topics=[]), 9))
    client.socket.sendall(client.frame(produce_request("reset", {0: batch(b"3")}), 9))
    client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    client.close()
    _wait_until(lambda: metrics.connections_open == 0)
    assert metrics.delayed_fetches == metrics.requests_in_flight == metrics.in_flight_bytes == 0
    with node.client() as reader:
        found = reader.call(fetch_request("reset", {0: 0}), 12)
        assert values(rows(found)[0]) == [b"1", b"2", b"3"]
