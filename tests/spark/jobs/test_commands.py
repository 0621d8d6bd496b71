"""`tidelog audit` and `tidelog hotkeys` on a real topic and its archive."""

import json
import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from confluent_kafka import Producer
from pyspark.sql import SparkSession

from tests.spark.topics import create_topic
from tidelog.cli.audit import command as audit
from tidelog.cli.hotkeys import command as hotkeys
from tidelog.client.partitioners.key_hash import key_partition
from tidelog.spark.lake.opening import open_table
from tidelog.spark.lake.table import Change
from tidelog.testing import Broker

_PNG = b"\x89PNG"


def _transaction(broker: Broker, topic: str, *, commit: bool) -> None:
    producer = Producer(
        {"bootstrap.servers": broker.bootstrap_servers, "transactional.id": f"t-{topic}"}
    )
    producer.init_transactions(30)
    producer.begin_transaction()
    for _ in range(3):
        producer.produce(topic, b"in a transaction", partition=0)
    producer.flush(30)
    if commit:
        producer.commit_transaction(30)
    else:
        producer.abort_transaction(30)


def _fill(broker: Broker, topic: str) -> None:
    """300 records, of which 100 have the same key; then 3 that count and 3 that do not."""
    producer = Producer(
        {"bootstrap.servers": broker.bootstrap_servers, "partitioner": "murmur2_random"}
    )
    for at in range(300):
        producer.produce(topic, b"v%d" % at, key=b"hot" if at % 3 == 0 else b"k%d" % at)
    assert producer.flush(30) == 0
    _transaction(broker, topic, commit=True)
    _transaction(broker, topic, commit=False)


def _run(command: Any, broker: Broker, arguments: Sequence[str], status: int = 0) -> Any:
    given = [*arguments, "--bootstrap", broker.bootstrap_servers]
    result = CliRunner().invoke(command, given)
    assert result.exit_code == status, (result.output, result.exception)
    return result


@pytest.mark.timeout(300)
def test_a_topic_and_its_archive(
    spark: SparkSession, broker: Broker, topic: str, tmp_path: Path
) -> None:
    from tidelog.spark.lake.archiving import archive

    create_topic(broker.bootstrap_servers, topic, 2)
    _fill(broker, topic)
    lake, picture = str(tmp_path / "lake"), tmp_path / "audit.png"
    archive([topic], lake, bootstrap=broker.bootstrap_servers)
    arguments = [topic, "--lake", lake, "--compare-lake", "--json", "--plot", str(picture)]
    found = json.loads(_run(audit, broker, arguments).stdout)
    assert found["passed"] is True
    assert found["comparison"]["equal"] is True
    live, archived = found["live"]["partitions"], found["lake"]["partitions"]
    assert sum(each["records"] for each in live) == 303
    for each, other in zip(live, archived, strict=True):
        for name in ("records", "bytes", "checksum", "first_offset", "last_offset", "last_time"):
            assert each[name] == other[name]
    # The marker of the first transaction; then the aborted records and their marker, at the end.
    assert live[0]["missing_offsets"] == {"markers": 1 + 3 + 1}
    assert archived[0]["missing_offsets"] == {"archived": 1 + 3 + 1}
    assert live[1]["gaps"] == archived[1]["gaps"] == []
    assert picture.read_bytes()[:4] == _PNG
    # A file that is in the lake twice: its records are, and the command says so.
    _add_file_again(lake)
    result = _run(audit, broker, [topic, "--lake", lake, "--json"], status=3)
    found = json.loads(result.stdout)
    assert found["passed"] is False
    twice = sum(each["duplicate_records"] for each in found["lake"]["partitions"])
    assert twice > 0
    assert "are there twice" in found["problems"][0]
    # One that another writer has deleted: its records are missing, in the whole and in a part.
    table = open_table(lake)
    snapshot = table.snapshot()
    gone = [file for file in snapshot.files if "again-" in file.name]
    gone.append(next(file for file in snapshot.files if file not in gone))
    table.commit(snapshot, Change("a writer that deletes", removes=gone))
    for part in ([], ["--from", "~1"]):
        result = _run(audit, broker, [topic, "--lake", lake, "--json", *part], status=3)
        problems = json.loads(result.stdout)["problems"]
        assert any("records were archived from offset 0 to" in each for each in problems)


def _add_file_again(path: str) -> None:
    table = open_table(path)
    snapshot = table.snapshot()
    file = snapshot.files[0]
    again = replace(file, path=f"{file.folder}/again-{file.name}".lstrip("/"))
    shutil.copy(table.place(file), table.root / again.path)
    table.commit(snapshot, Change("a writer that does not look", adds=[again]))


@pytest.mark.timeout(300)
def test_the_load_of_a_topic(
    spark: SparkSession, broker: Broker, topic: str, tmp_path: Path
) -> None:
    create_topic(broker.bootstrap_servers, topic, 2)
    _fill(broker, topic)
    picture = tmp_path / "keys.png"
    arguments = [topic, "--json", "--top", "3", "--plot", str(picture)]
    found = json.loads(_run(hotkeys, broker, arguments).stdout)
    assert (found["rows"], found["null_keys"]) == (303, 3)
    hot = found["heaviest"][0]
    assert (hot["key"], hot["rows"], hot["hot"]) == ("hot", 100, True)
    assert hot["partitions"] == [key_partition(b"hot", 2)]
    assert [each["ways"] for each in found["splits"]] == [2]
    assert found["splits"][0]["row_skew"] <= found["row_skew"]
    assert picture.read_bytes()[:4] == _PNG
    # For people, and only a part of the topic.
    shown = _run(hotkeys, broker, [topic, "--from", "1", "--to", "5", "-p", "0"]).stdout
    assert "heaviest keys" in shown
    assert "4 records" in shown


def test_parts_of_topics_and_what_there_is_not(
    spark: SparkSession, broker: Broker, topic: str
) -> None:
    create_topic(broker.bootstrap_servers, topic, 2)
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
    for at in range(10):
        producer.produce(topic, b"%d" % at, partition=1)
    assert producer.flush(30) == 0
    shown = _run(audit, broker, [topic, "--from", "2", "--to", "~3"]).stdout
    assert "passed" in shown
    result = _run(audit, broker, ["no-such-topic"], status=3)
    assert "does not exist" in result.stderr
    assert "no partition 7" in _run(audit, broker, [topic, "-p", "7"], status=3).stderr
    assert "--lake" in _run(audit, broker, [topic, "--compare-lake"], status=2).stderr


def test_a_compacted_topic_may_have_gaps(spark: SparkSession, broker: Broker, topic: str) -> None:
    from tidelog.protocol.topic_partition import TopicPartition
    from tidelog.spark.jobs.gaps import Compacted, SeenInLog
    from tidelog.spark.jobs.topic_rows import Bound, Topic

    create_topic(broker.bootstrap_servers, topic, 2, cleanup_policy="compact,delete")
    opened = Topic(broker.bootstrap_servers, topic)
    ranges = opened.ranges(Bound(), Bound())
    assert ranges == {TopicPartition(topic, at): (0, 0) for at in (0, 1)}
    assert isinstance(opened.rows(spark, ranges).explanation, Compacted)
    other = f"{topic}-other"
    create_topic(broker.bootstrap_servers, other, 2)
    kept = Topic(broker.bootstrap_servers, other).rows(spark, {TopicPartition(other, 0): (0, 0)})
    assert isinstance(kept.explanation, SeenInLog)
    assert kept.frame.count() == 0
