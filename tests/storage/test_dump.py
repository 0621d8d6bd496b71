"""Dumps and checks of the files that a store writes."""

import json
from pathlib import Path

import pytest

from tests.storage.store_cases import ORDERS, TOPIC_ID, append, open_store
from tidelog.storage.dump import UnknownFileError, dump_file
from tidelog.storage.log_config import LogConfig
from tidelog.storage.verify import Severity, verify

SEGMENT = "orders-0/00000000000000000000.log"


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A data directory of one partition with 20 batches, checkpointed in the middle."""
    store = open_store(tmp_path)
    log = store.create(ORDERS, TOPIC_ID, LogConfig(index_interval_bytes=200))
    for n in range(20):
        append(log, b"value %d" % n, b"second")
        store.commit()
        if n == 9:
            store.checkpoint()
    store.close()
    return tmp_path


def test_a_segment_shows_its_batches_and_records(data: Path) -> None:
    rows = list(dump_file(data / SEGMENT, records=True))
    assert [(row["base_offset"], row["last_offset"]) for row in rows] == [
        (2 * n, 2 * n + 1) for n in range(20)
    ]
    assert all(row["crc_is_valid"] for row in rows)
    json.dumps(rows)
    records = rows[3]["records"]
    assert isinstance(records, list)
    assert [record["value"] for record in records] == ["value 3", "second"]


def test_indexes_and_journal_show_their_entries(data: Path) -> None:
    partition = data / "orders-0"
    offsets = [row["offset"] for row in dump_file(partition / "00000000000000000000.index")]
    assert offsets == sorted(set(map(int, map(str, offsets))))
    assert offsets
    times = list(dump_file(partition / "00000000000000000000.timeindex"))
    assert times[0]["timestamp_ms"] == 1000
    (journal,) = (data / "journal").glob("*.journal")
    kinds = [row["kind"] for row in dump_file(journal) if "kind" in row]
    assert kinds == ["file_opened"] + ["batches"] * 10 + ["checkpoint"] + ["batches"] * 10 + [
        "checkpoint"
    ]
    assert list(dump_file(partition / "00000000000000000040.snapshot")) == []
    assert [row["text"] for row in dump_file(data / "recovery-point-offset-checkpoint")] == [
        "0",
        "1",
        "orders 0 40",
    ]


def test_other_files_are_refused(data: Path) -> None:
    (data / "x.txt").write_text("")
    with pytest.raises(UnknownFileError, match=r"x\.txt"):
        dump_file(data / "x.txt")


def test_a_sound_directory_has_no_findings(data: Path) -> None:
    assert list(verify(data)) == []
    assert list(verify(data / "orders-0")) == []
    assert list(verify(data / SEGMENT)) == []


def test_damage_in_a_segment_is_found(data: Path) -> None:
    content = bytearray((data / SEGMENT).read_bytes())
    content[300] ^= 1
    (data / SEGMENT).write_bytes(content)
    findings = list(verify(data))
    assert {(finding.path, finding.severity) for finding in findings} == {
        (data / SEGMENT, Severity.ERROR),
        (data / "orders-0", Severity.ERROR),  # it ends below its recovery point
    }
    assert "wrong CRC" in str(findings[0])
    rows = list(dump_file(data / SEGMENT))
    assert [row for row in rows if row.get("crc_is_valid") is False]
    (data / SEGMENT).write_bytes(content[:310])
    assert "no batch can be read here" in str(next(verify(data / SEGMENT)))
    assert "error" in list(dump_file(data / SEGMENT))[-1]


def test_damaged_small_files_are_found(data: Path) -> None:
    for name in ("meta.properties", "replication-offset-checkpoint", "orders-0/partition.metadata"):
        (data / name).write_bytes(b"x")
    (data / "orders-0" / "00000000000000000040.snapshot").write_bytes(b"abc")
    assert {finding.path.name: finding.severity for finding in verify(data)} == {
        "meta.properties": Severity.ERROR,
        "replication-offset-checkpoint": Severity.ERROR,
        "partition.metadata": Severity.ERROR,
        "00000000000000000040.snapshot": Severity.WARNING,
    }


def test_index_entries_that_go_back_are_found(data: Path) -> None:
    index = data / "orders-0" / "00000000000000000000.index"
    entries = index.read_bytes()
    index.write_bytes(entries[8:16] + entries[:8])
    assert any("comes after" in finding.problem for finding in verify(data / "orders-0"))
