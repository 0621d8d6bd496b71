"""What fuzzing has found, frame by frame."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.storage.log_making import NOW_MS, append, make_log, reopen
from tidelog.protocol.control_records import encode_end_marker
from tidelog.storage.append_result import Origin
from tidelog.storage.files import CorruptFileError
from tidelog.testing import Broker
from tidelog.testing.wire import WireClient


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker() as running:
        yield running


@pytest.fixture
def wire(broker: Broker) -> Iterator[WireClient]:
    with WireClient("127.0.0.1", broker.port) as client:
        yield client


def send(wire: WireClient, body: str) -> None:
    data = bytes.fromhex(body)
    wire.socket.sendall(len(data).to_bytes(4, "big") + data)


def test_a_client_id_cut_short_is_refused_after_the_same_one(wire: WireClient) -> None:
    send(wire, "0012 0000 00000001 0002 6162")
    wire.receive_frame()
    send(wire, "0012 0000 00000002 0030 6162")
    assert wire.is_ended()


def test_a_damaged_marker_is_refused_with_the_name_of_its_file(tmp_path: Path) -> None:
    log = make_log(tmp_path)
    append(log, producer_id=1, epoch=0, sequence=0, is_transactional=True)
    marker = encode_end_marker(
        producer_id=1, producer_epoch=0, is_commit=True, coordinator_epoch=0, timestamp_ms=NOW_MS
    )
    log.append_as_leader(memoryview(marker), 0, NOW_MS, origin=Origin.COORDINATOR)
    log.close()
    (tmp_path / "00000000000000000002.snapshot").unlink()
    path = tmp_path / "00000000000000000000.log"
    content = bytearray(path.read_bytes())
    content[-1] ^= 0x40  # the number of headers
    path.write_bytes(content)
    with pytest.raises(CorruptFileError, match=path.name):
        reopen(tmp_path, clean=True)
