"""Frames that real clients sent (see tools/record_golden.py) are read, and written the same."""

import json
from pathlib import Path

import pytest

from tidelog.protocol.api_keys import ApiKey
from tidelog.protocol.compression import Compression
from tidelog.protocol.fetch import decode_fetch_request
from tidelog.protocol.headers import decode_request, decode_request_header, encode_request
from tidelog.protocol.produce import decode_produce_request
from tidelog.protocol.records import Record, decode_batches

GOLDEN = Path(__file__).parent / "golden"
CLIENTS = ["confluent", "kafka-python", "aiokafka"]
every_client = pytest.mark.parametrize("client", CLIENTS)


def frames_of(client: str, api: str | None = None) -> list[tuple[str, int, bytes]]:
    lines = map(json.loads, (GOLDEN / f"{client}.jsonl").read_text().splitlines())
    return [
        (line["api"], line["version"], bytes.fromhex(line["frame"]))
        for line in lines
        if api in (None, line["api"])
    ]


@every_client
def test_requests_of_a_client_are_read_and_written_the_same(client: str) -> None:
    for api, version, frame in frames_of(client):
        header, request = decode_request(frame)
        assert (ApiKey(header.api_key).name, header.api_version) == (api, version)
        again = encode_request(
            header.api_key, version, header.correlation_id, header.client_id, request
        )
        assert again[4:] == frame


@every_client
def test_records_of_a_client_are_the_ones_it_was_told_to_send(client: str) -> None:
    seen = []
    for _, version, frame in frames_of(client, "PRODUCE"):
        _, at = decode_request_header(frame)
        data = decode_produce_request(memoryview(frame), version, at)
        [(topic, [(partition, records)])] = data.topics
        assert (topic, partition) == ("golden", 0)
        assert records is not None
        [(header, decoded)] = decode_batches(records)
        codec = header.compression.name.lower()
        seen.append(header.compression)
        assert decoded == [sent_record(codec, index) for index in range(3)]
    missing = {Compression.SNAPPY} if client == "kafka-python" else set()
    assert set(seen) == set(Compression) - missing


def sent_record(codec: str, index: int) -> Record:
    return Record(
        offset=index,
        timestamp=1_700_000_000_000 + index,
        key=None if index == 1 else f"key-{index}".encode(),
        value=f"{codec}-{index} ".encode() * 20,
        headers=[("codec", codec.encode())] if index == 2 else [],
    )


@every_client
def test_fetches_of_a_client_ask_for_the_start_of_the_topic(client: str) -> None:
    frames = frames_of(client, "FETCH")
    assert frames
    _, version, frame = frames[0]
    _, at = decode_request_header(frame)
    data = decode_fetch_request(memoryview(frame), version, at)
    assert data.replica_id == -1
    [(topic, [partition])] = data.topics
    assert topic == ("golden" if version < 13 else bytes(range(1, 17)))
    assert (partition.partition, partition.fetch_offset) == (0, 0)
