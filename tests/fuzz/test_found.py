"""What fuzzing has found, frame by frame."""

from collections.abc import Iterator

import pytest

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
