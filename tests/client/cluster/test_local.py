"""Files in place of records: what a node hands over its Unix socket, and to whom."""

import errno
import fcntl
import os
import socket
import subprocess
import sys
import threading
import time
from array import array
from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, ConfigResource

from tidelog.client.cluster import Cluster, WireConnection
from tidelog.client.cluster import local as local_module
from tidelog.client.cluster.local import LocalConnection, find_local_address, read_range
from tidelog.client.errors import ConnectError
from tidelog.protocol.apis.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from tidelog.protocol.apis.metadata import MetadataRequest, MetadataResponse
from tidelog.protocol.file_reference import SIZE_BYTES, FileReference, decode_file_reference
from tidelog.protocol.record_batch import BATCH_OVERHEAD
from tidelog.testing import Broker

WAIT_S = 30
NODE_ID = 1
NAMES_UP_TO = 12
NOBODY = 65534


@pytest.fixture
def cluster(tidelog_broker: Broker) -> Iterator[Cluster]:
    with Cluster(tidelog_broker.bootstrap_servers) as cluster:
        yield cluster


@pytest.fixture
def local(cluster: Cluster) -> Iterator[LocalConnection]:
    with connect(cluster) as connection:
        yield connection


def connect(cluster: Cluster) -> LocalConnection:
    address = find_local_address(cluster.brokers()[0], NODE_ID)
    assert address is not None
    return LocalConnection.open_local(address, client_id="beside", timeout_s=WAIT_S)


def produce(cluster: Cluster, topic: str, count: int, **settings: str) -> None:
    metadata = cluster.metadata([]).brokers[0]
    servers = f"{metadata.host}:{metadata.port}"
    producer = Producer({"bootstrap.servers": servers, "linger.ms": 1, **settings})
    for index in range(count):
        producer.produce(topic, b"%d" % index * 20, partition=0)
    assert producer.flush(WAIT_S) == 0


def fetch_request(topic: str, offset: int = 0, *, max_bytes: int = 1 << 20) -> FetchRequest:
    partition = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=max_bytes)
    return FetchRequest(
        max_wait_ms=0,
        min_bytes=1,
        max_bytes=max_bytes,
        topics=[FetchTopic(topic=topic, partitions=[partition])],
    )


def fetch(connection: WireConnection, topic: str, offset: int = 0) -> bytes:
    """The records of one fetch, over either kind of connection."""
    answer = connection.call(fetch_request(topic, offset), FetchResponse, version_max=NAMES_UP_TO)
    (row,) = answer.responses[0].partitions
    assert row.error_code == 0
    records = memoryview(row.records or b"")
    if isinstance(connection, LocalConnection):
        records = connection.resolve(records, bytearray)
    return bytes(records)


def open_files(part_of_path: str) -> int:
    """How often this process has such files open; others come and go with the broker's threads."""
    count = 0
    for fd in os.listdir("/proc/self/fd"):
        with suppress(FileNotFoundError):
            count += part_of_path in os.readlink(f"/proc/self/fd/{fd}")
    return count


def test_a_file_has_what_tcp_would_have_sent(cluster: Cluster, local: LocalConnection) -> None:
    produce(cluster, "same", 3000, **{"batch.size": "4000"})
    over_tcp = cluster.brokers()[0]
    for offset in (0, 1, 1234, 2999):
        expected = fetch(over_tcp, "same", offset)
        assert len(expected) > BATCH_OVERHEAD
        assert fetch(local, "same", offset) == expected
    assert fetch(local, "same", 3000) == b""


def test_the_same_socket_answers_everything_else(cluster: Cluster, local: LocalConnection) -> None:
    produce(cluster, "else", 1)
    request = MetadataRequest(topics=None)
    over_tcp = cluster.brokers()[0].call(request, MetadataResponse)
    assert local.call(request, MetadataResponse) == over_tcp


def test_a_file_can_only_be_read_and_no_descriptor_is_left(
    cluster: Cluster, local: LocalConnection
) -> None:
    produce(cluster, "read-only", 10)
    fetch(local, "read-only")
    before = open_files("/read-only-0/")
    for _ in range(20):
        assert fetch(local, "read-only")
    assert open_files("/read-only-0/") == before
    local.call(fetch_request("read-only"), FetchResponse, version_max=NAMES_UP_TO)
    (fd,) = local._files
    assert fcntl.fcntl(fd, fcntl.F_GETFL) & os.O_ACCMODE == os.O_RDONLY
    assert fcntl.fcntl(fd, fcntl.F_GETFD) & fcntl.FD_CLOEXEC
    local.close()
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(fd)


def test_answers_in_flight_keep_their_files_apart(cluster: Cluster, local: LocalConnection) -> None:
    for topic, count in (("apart-a", 5), ("apart-b", 70), ("apart-c", 1)):
        produce(cluster, topic, count)
    topics = ["apart-a", "apart-b", "apart-c", "apart-b"] * 40
    for topic in topics:
        local.send(fetch_request(topic), version_max=NAMES_UP_TO)
    over_tcp = {topic: fetch(cluster.brokers()[0], topic) for topic in set(topics)}
    for topic in topics:
        (row,) = local.receive(FetchResponse).responses[0].partitions
        assert bytes(local.resolve(memoryview(row.records or b""), bytearray)) == over_tcp[topic]


def test_a_client_that_does_not_read_costs_the_node_no_descriptors(tmp_path: Path) -> None:
    with (
        Broker(mode="process", data=tmp_path) as broker,
        Cluster(broker.bootstrap_servers) as cluster,
    ):
        produce(cluster, "unread", 10)
        expected = fetch(cluster.brokers()[0], "unread")
        count = 5000
        with connect(cluster) as lazy:

            def ask() -> None:
                for _ in range(count):
                    lazy.send(fetch_request("unread"), version_max=NAMES_UP_TO)

            sender = threading.Thread(target=ask)
            sender.start()
            time.sleep(0.5)
            # Others are served meanwhile.
            assert fetch(cluster.brokers()[0], "unread") == expected
            assert len(os.listdir(f"/proc/{broker.pid}/fd")) < 200
            for _ in range(count):
                (row,) = lazy.receive(FetchResponse).responses[0].partitions
                assert lazy.resolve(memoryview(row.records or b""), bytearray) == expected
            sender.join()


def test_records_that_were_deleted_are_still_in_the_file(tmp_path: Path) -> None:
    with Broker(data=tmp_path) as broker, Cluster(broker.bootstrap_servers) as cluster:
        produce(cluster, "deleted", 100)
        expected = fetch(cluster.brokers()[0], "deleted")
        with connect(cluster) as local:
            answer = local.call(fetch_request("deleted"), FetchResponse, version_max=NAMES_UP_TO)
            admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
            for done in admin.delete_topics(["deleted"]).values():
                done.result(WAIT_S)
            deadline = time.monotonic() + WAIT_S
            while list(tmp_path.glob("deleted-0*")):
                assert time.monotonic() < deadline
                time.sleep(0.05)
            (row,) = answer.responses[0].partitions
            assert local.resolve(memoryview(row.records or b""), bytearray) == expected


def test_the_name_of_the_socket_is_told_as_a_setting(tidelog_broker: Broker) -> None:
    admin = AdminClient({"bootstrap.servers": tidelog_broker.bootstrap_servers})
    resource = ConfigResource(ConfigResource.Type.BROKER, str(NODE_ID))
    (done,) = admin.describe_configs([resource]).values()
    entry = done.result(WAIT_S)["local.reads.socket"]
    assert entry.value.startswith("@tidelog-")
    assert entry.is_read_only
    assert entry.value == tidelog_broker.node.local_address


def test_each_start_has_a_name_of_its_own(tmp_path: Path) -> None:
    names = set()
    for _ in range(2):
        with Broker(data=tmp_path) as broker:
            names.add(broker.node.local_address)
    assert len(names) == 2
    for name in names:
        assert name is not None
        with pytest.raises(ConnectError, match=f"no broker answers at {name}"):
            LocalConnection.open_local(name, client_id="late")


def test_local_reads_can_be_switched_off(tmp_path: Path) -> None:
    settings = {"local.reads.enable": "false"}
    with (
        Broker(data=tmp_path, settings=settings) as broker,
        Cluster(broker.bootstrap_servers) as cluster,
    ):
        assert broker.node.local_address is None
        assert find_local_address(cluster.brokers()[0], NODE_ID) is None


def test_a_node_asked_for_another_one_tells_nothing(cluster: Cluster) -> None:
    assert find_local_address(cluster.brokers()[0], NODE_ID + 1) is None


_AS_NOBODY = """
import os, sys
sys.path.insert(0, sys.argv[2])
from tidelog.client.errors import ConnectError
from tidelog.client.cluster.local import LocalConnection
os.setgid({nobody}); os.setuid({nobody})
try:
    LocalConnection.open_local(sys.argv[1], client_id="nobody")
except ConnectError as error:
    print(error)
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_another_user_is_turned_away(tidelog_broker: Broker) -> None:
    address = tidelog_broker.node.local_address
    assert address is not None
    source = str(Path(local_module.__file__).parents[2])
    done = subprocess.run(
        [sys.executable, "-c", _AS_NOBODY.format(nobody=NOBODY), address, source],
        capture_output=True,
        text=True,
        timeout=WAIT_S,
        check=False,
    )
    assert done.stdout.startswith(address), done.stderr
    assert "closed the connection" in done.stdout or "went away" in done.stdout


def test_a_socket_of_another_user_is_not_trusted(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as impostor:
        name = f"tidelog-impostor-{os.getpid()}"
        impostor.bind(f"\0{name}")
        impostor.listen()
        monkeypatch.setattr(local_module, "_ROOT", -1)
        monkeypatch.setattr(os, "geteuid", lambda: NOBODY)
        with pytest.raises(ConnectError, match="belongs to another user"):
            LocalConnection.open_local(f"@{name}", client_id="careful")


# Ranges of files


@pytest.fixture
def file(tmp_path: Path) -> Iterator[int]:
    path = tmp_path / "file"
    path.write_bytes(bytes(range(256)) * 100)
    fd = os.open(path, os.O_RDONLY)
    yield fd
    os.close(fd)


@pytest.mark.parametrize("is_mapped", [True, False])
@pytest.mark.parametrize("position", [0, 1, 4096, 5000])
def test_a_range_is_mapped_or_copied(
    file: int, position: int, is_mapped: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An old kernel does not know how to bring all pages in first."""
    if not is_mapped:
        monkeypatch.setattr(local_module, "_MADV_POPULATE_READ", 9999)
    asked = []

    def allocate(size: int) -> bytearray:
        asked.append(size)
        return bytearray(size)

    found = read_range(file, FileReference(position, 700), allocate)
    assert bytes(found) == (bytes(range(256)) * 100)[position : position + 700]
    assert asked == ([] if is_mapped else [700])


def test_a_file_that_is_too_short_is_an_error(file: int) -> None:
    with pytest.raises(OSError, match="shorter than the broker said"):
        read_range(file, FileReference(25_000, 700), bytearray)


def test_an_answer_without_its_file_is_an_error(local: LocalConnection) -> None:
    with pytest.raises(ConnectError, match="sent no file"):
        local.resolve(memoryview(FileReference(0, 10).encode()), bytearray)


def test_a_file_that_cannot_be_read_is_an_error(local: LocalConnection) -> None:
    reading, writing = os.pipe()
    os.close(writing)
    local._files.append(reading)
    with pytest.raises(ConnectError, match=rf"cannot be read: \[Errno {errno.ESPIPE}\]"):
        local.resolve(memoryview(FileReference(0, 10).encode()), bytearray)
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(reading)


def test_more_files_than_can_be_taken_are_an_error(tmp_path: Path) -> None:
    """The kernel closes what does not fit; what is left belongs to nobody knows which answer."""
    path = tmp_path / "file"
    path.write_bytes(b"x")
    here, there = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    with here, there, path.open("rb") as opened:
        local = LocalConnection.__new__(LocalConnection)
        local.address, local._socket = "@pair", here
        local._files = deque()
        rights = array("i", [opened.fileno()] * 200)
        there.sendmsg([b"abcd"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, rights)])
        with pytest.raises(ConnectError, match="cannot take more files"):
            local._receive_some(memoryview(bytearray(4)))
        local.close()
        assert open_files(str(path)) == 1  # our own


def test_records_are_never_taken_for_a_reference() -> None:
    reference = FileReference(2**40, 2**31)
    encoded = reference.encode()
    assert len(encoded) == SIZE_BYTES < BATCH_OVERHEAD
    assert decode_file_reference(encoded) == reference
    assert decode_file_reference(encoded + b"\0") is None
    assert decode_file_reference(b"x" * SIZE_BYTES) is None
    assert decode_file_reference(b"") is None
