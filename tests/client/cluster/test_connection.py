"""The blocking wire client against a real broker."""

import os
import socket
import struct
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.client.cluster.scripted_broker import ScriptedBroker
from tidelog.client.cluster import COORDINATOR_GROUP, Cluster, WireConnection
from tidelog.client.errors import ClientError, ConnectError
from tidelog.protocol.api_keys import ApiKey
from tidelog.protocol.apis.api_versions import ApiVersion, ApiVersionsResponse
from tidelog.protocol.apis.create_topics import (
    CreatableTopic,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from tidelog.protocol.apis.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from tidelog.protocol.apis.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from tidelog.protocol.headers import encode_request, encode_response
from tidelog.testing import Broker
from tidelog.testing.broker import free_port


def create_topic(cluster: Cluster, name: str, partitions: int) -> None:
    topic = CreatableTopic(name=name, num_partitions=partitions, replication_factor=1)
    request = CreateTopicsRequest(topics=[topic], timeout_ms=10_000)
    (row,) = cluster.ask_any(request, CreateTopicsResponse).topics
    assert row.error_code == 0


def test_requests_in_flight_are_answered_in_order(tidelog_broker: Broker) -> None:
    with Cluster(tidelog_broker.bootstrap_servers) as cluster:
        create_topic(cluster, "pipelined", 2)
        (connection,) = cluster.brokers()
        for _ in range(3):
            connection.send(MetadataRequest(topics=[]))
            connection.send(MetadataRequest(topics=None))
        assert connection.in_flight == 6
        # A question to any broker does not wait behind them.
        assert cluster.metadata([]).brokers
        counts = [len(connection.receive(MetadataResponse).topics) for _ in range(6)]
        assert counts[0::2] == [0, 0, 0]
        assert all(count >= 1 for count in counts[1::2])
        assert connection.in_flight == 0


def test_an_answer_is_received_into_the_buffer_that_the_caller_gives(
    tidelog_broker: Broker,
) -> None:
    buffer = memoryview(bytearray(1 << 16))
    asked = []

    def allocate(size: int) -> memoryview:
        asked.append(size)
        return buffer[:size]

    with Cluster(tidelog_broker.bootstrap_servers) as cluster:
        (connection,) = cluster.brokers()
        connection.send(MetadataRequest(topics=[]))
        first = connection.receive(MetadataResponse, allocate=allocate)
        assert first == connection.call(MetadataRequest(topics=[]), MetadataResponse)
    (size,) = asked
    assert any(buffer[:size])
    assert not any(buffer[size:])


def test_a_restarted_broker_is_found_again() -> None:
    port = free_port()
    group = COORDINATOR_GROUP, ["any"]
    with Broker(port=port) as broker:
        cluster = Cluster(broker.bootstrap_servers)
        connection = cluster.connect(cluster.coordinators(*group)["any"])
    with pytest.raises(ConnectError):
        connection.call(MetadataRequest(topics=[]), MetadataResponse)
    cluster.drop(connection)
    with Broker(port=port), cluster:
        assert cluster.metadata([]).brokers
        assert cluster.connect(cluster.coordinators(*group)["any"]) is not connection


def test_an_address_that_is_none_is_named() -> None:
    with pytest.raises(ClientError, match="'nonsense' is not HOST:PORT"):
        Cluster("nonsense")


def test_large_answers_come_whole_however_slowly() -> None:
    """Behind a relay that lets less through within the timeout than is waited for at once."""
    row_count = 12_000
    rows = [
        MetadataResponsePartition(partition_index=index, replica_nodes=[1], isr_nodes=[1])
        for index in range(row_count)
    ]
    large = MetadataResponse(topics=[MetadataResponseTopic(name="large", partitions=rows)])

    def metadata(request: MetadataRequest) -> MetadataResponse:
        return large if request.topics is None else MetadataResponse()

    served = {ApiKey.METADATA: (12, 12)}
    with (
        ScriptedBroker({ApiKey.METADATA: metadata}, served) as broker,
        socket.create_server(("127.0.0.1", 0)) as listener,
    ):
        host, _, port = broker.bootstrap.rpartition(":")
        relay = threading.Thread(target=relay_slowly, args=(listener, (host, int(port))))
        relay.start()
        here, there = listener.getsockname()
        # Long enough for a busy machine to begin its answer, too short for 256 KB of it.
        with WireConnection.open(here, there, client_id="slow", timeout_s=4.0) as connection:
            answer = connection.call(MetadataRequest(topics=None), MetadataResponse)
            assert [len(topic.partitions) for topic in answer.topics] == [row_count]
            # The connection is as good as before.
            assert connection.call(MetadataRequest(topics=[]), MetadataResponse).topics == []
        relay.join()


def relay_slowly(listener: socket.socket, target: tuple[str, int]) -> None:
    """Pass requests on at once, and answers in pieces of 5 KB every tenth of a second."""
    client, _ = listener.accept()
    with client, socket.create_connection(target) as broker:
        while request := client.recv(1 << 16):
            broker.sendall(request)
            (left,) = struct.unpack(">i", header := broker.recv(4, socket.MSG_WAITALL))
            client.sendall(header)
            while left:
                piece = broker.recv(min(left, 5 * 1024), socket.MSG_WAITALL)
                client.sendall(piece)
                left -= len(piece)
                time.sleep(0.1 if left else 0)


def test_large_requests_are_sent_whole_to_a_broker_that_reads_slowly() -> None:
    sizes = (10, 3_000_000, 0, 100_000, 20_000, 5)
    rows = [
        PartitionProduceData(index=index, records=memoryview(os.urandom(size)))
        for index, size in enumerate(sizes)
    ]
    request = ProduceRequest(acks=1, topic_data=[TopicProduceData(name="t", partition_data=rows)])
    with socket.create_server(("127.0.0.1", 0)) as listener, ThreadPoolExecutor() as pool:
        received = pool.submit(receive_slowly, listener)
        host, port = listener.getsockname()
        with WireConnection.open(host, port, client_id="large") as connection:
            connection.send(request)
        assert received.result() == encode_request(ApiKey.PRODUCE, 9, 2, "large", request)


def receive_slowly(listener: socket.socket) -> bytes:
    """Say that version 9 of Produce is served; then everything that comes."""
    connection, _ = listener.accept()
    with connection:
        (size,) = struct.unpack(">i", connection.recv(4, socket.MSG_WAITALL))
        connection.recv(size, socket.MSG_WAITALL)
        served = ApiVersion(api_key=ApiKey.PRODUCE, min_version=9, max_version=9)
        answer = ApiVersionsResponse(api_keys=[served])
        connection.sendall(encode_response(ApiKey.API_VERSIONS, 3, 1, answer))
        received = bytearray()
        while piece := connection.recv(256 * 1024):
            received += piece
            time.sleep(0.005)
    return bytes(received)
