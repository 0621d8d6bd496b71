"""`tidelog log`: on the files of a broker that has ended."""

import json
from pathlib import Path

import pytest

from tests.cli.conftest import run_command
from tidelog.client import connect
from tidelog.testing import Broker


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("data")
    with Broker(data=folder) as broker, connect(broker.bootstrap_servers) as client:
        client.create_topic("dumped", partitions=1)
        for number in range(20):
            client.publish("dumped", key=f"key-{number}", value=f"value-{number}")
        client.flush()
    return folder


def test_dump_shows_batches_and_records(data: Path) -> None:
    done = run_command("log", "dump", str(data / "dumped-0"), "--records", "--json")
    assert done.returncode == 0, done.stderr
    assert "value-19" in done.stdout
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert any(row["file"].endswith("00000000000000000000.log") for row in rows)
    text = run_command("log", "dump", str(data / "dumped-0"), "-n", "1")
    assert text.returncode == 0
    assert "00000000000000000000.log" in text.stdout


def test_dump_shows_the_journal(data: Path) -> None:
    done = run_command("log", "dump", *map(str, (data / "journal").glob("*.journal")), "--json")
    assert done.returncode == 0, done.stderr


def test_verify_finds_nothing_wrong_and_then_what_was_damaged(data: Path, tmp_path: Path) -> None:
    done = run_command("log", "verify", str(data), "--json")
    assert done.returncode == 0, done.stdout
    segment = data / "dumped-0" / "00000000000000000000.log"
    copy = tmp_path / segment.name
    damaged = bytearray(segment.read_bytes())
    damaged[len(damaged) // 2] ^= 0xFF
    copy.write_bytes(damaged)
    found = run_command("log", "verify", str(copy), "--json")
    assert found.returncode == 3
    assert segment.name in found.stdout


def test_an_unknown_file_is_refused_in_one_line(tmp_path: Path) -> None:
    stranger = tmp_path / "stranger.txt"
    stranger.write_text("hello")
    done = run_command("log", "dump", str(stranger))
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
