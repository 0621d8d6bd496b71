"""Files damaged between two runs of a broker: all acknowledged records are served, or the start is
refused with words that name the file and say what to do.

Each case damages every file of one kind, in a copy of the data of a broker that was killed or
stopped.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.compatibility.calls import batch, fetch_request, produce_request
from tidelog.protocol.apis.create_topics import CreatableTopic, CreateTopicsRequest
from tidelog.protocol.apis.delete_topics import DeleteTopicsRequest, DeleteTopicState
from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.records import decode_batches
from tidelog.testing import Broker
from tidelog.testing.broker import BrokerError
from tidelog.testing.wire import WireClient

TOPIC = "kept"
PARTITIONS = 2
RECORDS = 120
SETTINGS = {
    "log.segment.bytes": "16384",
    "log.index.interval.bytes": "1024",
    "durability": "fsync",
}
WHAT_TO_DO = re.compile(r"[Rr]estore|Write the right|[Mm]ove|[Rr]emove|[Dd]elete")

Harm = Callable[[Path], None]


def value(partition: int, number: int) -> bytes:
    return b"%d/%d " % (partition, number) + bytes(400)


def write_records(data: Path, *, clean: bool) -> None:
    """Acknowledged records in several segments, then the end of the broker."""
    with Broker(mode="process", data=data, settings=SETTINGS) as broker:
        with WireClient("127.0.0.1", broker.port) as client:
            topic = CreatableTopic(name=TOPIC, num_partitions=PARTITIONS, replication_factor=1)
            client.call(CreateTopicsRequest(topics=[topic], timeout_ms=10_000), 7)
            for number in range(RECORDS):
                for partition in range(PARTITIONS):
                    records = batch(value(partition, number))
                    client.send(produce_request(TOPIC, records, partition=partition), 9)
            for number in range(RECORDS):
                for _ in range(PARTITIONS):
                    _, answer = client.receive()
                    row = answer.responses[0].partition_responses[0]
                    assert (row.error_code, row.base_offset) == (0, number)
        if clean:
            broker.stop()
        else:
            broker.kill()


@pytest.fixture(scope="module", params=["killed", "stopped"])
def written(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    data = tmp_path_factory.mktemp(request.param)
    write_records(data, clean=request.param == "stopped")
    return data


def check_served(client: WireClient) -> None:
    for partition in range(PARTITIONS):
        found: list[bytes | None] = []
        while len(found) < RECORDS:
            request = fetch_request(TOPIC, len(found), partition=partition)
            row = client.call(request, 12).responses[0].partitions[0]
            assert row.error_code == 0, row
            assert row.records, f"partition {partition} ends after {len(found)} records"
            for _, records in decode_batches(row.records):
                found += [record.value for record in records if record.offset >= len(found)]
        assert found == [value(partition, number) for number in range(RECORDS)]


def flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 0x10
    path.write_bytes(content)


def cut(path: Path) -> None:
    content = path.read_bytes()
    path.write_bytes(content[: len(content) // 2])


def delete(path: Path) -> None:
    path.unlink()


HARMS = [flip, cut, delete]


# All of these can be made again from what is left, and none of them is looked at twice.
REBUILT = [
    "kept-*/*.index",
    "kept-*/*.timeindex",
    "kept-*/*.snapshot",
    "kept-*/leader-epoch-checkpoint",
    "log-start-offset-checkpoint",
    "replication-offset-checkpoint",
    "journal-checkpoint",
]
CHECKED = [
    "kept-*/partition.metadata",
    "meta.properties",
    "recovery-point-offset-checkpoint",
    "journal/*.journal",
    "__cluster_metadata-0/*.log",
    "__cluster_metadata-0/partition.metadata",
]


@contextmanager
def started(data: Path) -> Iterator[WireClient]:
    broker = Broker(mode="process", data=data, settings=SETTINGS)
    broker.start()
    try:
        with WireClient("127.0.0.1", broker.port) as client:
            yield client
    finally:
        broker.kill()


def harmed_copy(written: Path, data: Path, patterns: list[str], harm: Harm) -> list[Path]:
    shutil.copytree(written, data)
    paths = [path for pattern in patterns for path in sorted(data.glob(pattern))]
    harmed = [path for path in paths if path.stat().st_size]
    for path in harmed:
        harm(path)
    return harmed


@pytest.mark.parametrize("harm", HARMS)
def test_what_can_be_made_again_is(written: Path, tmp_path: Path, harm: Harm) -> None:
    data = tmp_path / "data"
    assert harmed_copy(written, data, REBUILT, harm)
    with started(data) as client:
        check_served(client)


@pytest.mark.parametrize("harm", HARMS)
@pytest.mark.parametrize("pattern", CHECKED)
def test_damage_loses_nothing_silently(
    written: Path, tmp_path: Path, pattern: str, harm: Harm
) -> None:
    data = tmp_path / "data"
    harmed = harmed_copy(written, data, [pattern], harm)
    assert harmed
    try:
        with started(data) as client:
            check_served(client)
    except BrokerError as error:
        check_refusal(str(error), harmed)


def check_refusal(message: str, harmed: list[Path]) -> None:
    assert any(str(path) in message for path in harmed), message
    assert WHAT_TO_DO.search(message), message
    assert "Traceback" not in message, message


@pytest.mark.parametrize("harm", HARMS)
def test_the_journal_gives_back_what_a_kill_tore_off(tmp_path: Path, harm: Harm) -> None:
    data = tmp_path / "data"
    write_records(data, clean=False)
    for partition in range(PARTITIONS):
        newest = max((data / f"{TOPIC}-{partition}").glob("*.log"))
        harm(newest)
    with started(data) as client:
        check_served(client)


def test_a_topic_that_was_deleted_stays_so_when_its_files_come_back(tmp_path: Path) -> None:
    data, kept = tmp_path / "data", tmp_path / "kept"
    write_records(data, clean=True)
    shutil.copytree(data / f"{TOPIC}-0", kept)
    with started(data) as client:
        request = DeleteTopicsRequest(
            topics=[DeleteTopicState(name=TOPIC)], topic_names=[TOPIC], timeout_ms=10_000
        )
        client.call(request, 5)
    shutil.rmtree(data / f"{TOPIC}-0", ignore_errors=True)
    shutil.copytree(kept, data / f"{TOPIC}-0")
    with started(data) as client:
        row = client.call(fetch_request(TOPIC, 0), 12).responses[0].partitions[0]
        assert row.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert not (data / f"{TOPIC}-0").exists()


def test_records_of_a_topic_that_nobody_knows_are_not_deleted(tmp_path: Path) -> None:
    data = tmp_path / "data"
    write_records(data, clean=True)
    shutil.copytree(data / f"{TOPIC}-0", data / "stranger-0")
    (data / "stranger-0" / "partition.metadata").write_text(
        "version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAQQ"
    )
    with pytest.raises(BrokerError) as refusal, started(data):
        pass
    check_refusal(str(refusal.value), [data / "stranger-0"])
    shutil.move(data / "stranger-0", tmp_path)
    with started(data) as client:
        check_served(client)
