"""`tidelog produce` and `tidelog consume`."""

import json
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.cli.conftest import Run, run_command
from tests.cli.interruptible import INTERRUPTIBLE
from tidelog.client.cluster import Cluster, ClusterClient, Groups
from tidelog.testing import Broker


def test_lines_go_in_and_come_out(run: Run, topic: str) -> None:
    run("topic", "create", topic)
    run("produce", topic, given="one\ntwo\nthree\n")
    assert run("consume", topic).stdout == "one\ntwo\nthree\n"


def test_keys_headers_and_compression(run: Run, topic: str) -> None:
    run("topic", "create", topic)
    run("produce", topic, "-K", ":", "-H", "from=test", "-z", "zstd", given="a:1\nb:2\n")
    assert run("consume", topic, "--format", "key-value").stdout == "a\t1\nb\t2\n"
    records = [json.loads(line) for line in run("consume", topic, "--json").stdout.splitlines()]
    assert [record["key"] for record in records] == ["a", "b"]
    assert records[0]["headers"] == [["from", "test"]]


def test_what_consume_prints_as_json_can_be_produced_again(run: Run, topic: str) -> None:
    run("topic", "create", topic, f"{topic}-copy")
    given = [
        {"key": "k", "value": "text", "headers": {"h": "1"}, "timestamp": 1234},
        {"key": None, "value": None},
        {"value": {"nested": [1, 2]}},
        {"value": "/w==", "encoding": "base64"},
    ]
    lines = "\n".join(json.dumps(entry) for entry in given)
    run("produce", topic, "--format", "json", given=lines)
    printed = run("consume", topic, "--json").stdout
    run("produce", f"{topic}-copy", "--format", "json", given=printed)
    copied = [
        json.loads(line) for line in run("consume", f"{topic}-copy", "--json").stdout.splitlines()
    ]
    assert [record["value"] for record in copied] == ["text", None, '{"nested":[1,2]}', "/w=="]
    assert copied[0]["timestamp"] == 1234
    assert copied[3]["encoding"] == "base64"


def test_from_any_position(run: Run, topic: str) -> None:
    run("topic", "create", topic)
    entries = [{"value": str(i), "timestamp": 1_000_000 + i * 1000} for i in range(10)]
    run("produce", topic, "--format", "json", given="\n".join(map(json.dumps, entries)))
    assert run("consume", topic, "--from", "7").stdout.split() == ["7", "8", "9"]
    assert run("consume", topic, "--from", "~2").stdout.split() == ["8", "9"]
    assert run("consume", topic, "--from", "@1004500").stdout.split() == ["5", "6", "7", "8", "9"]
    assert run("consume", topic, "--from", "2", "--until", "4").stdout.split() == ["2", "3"]
    assert run("consume", topic, "-n", "2").stdout.split() == ["0", "1"]
    assert run("consume", topic, "--from", "end").stdout == ""
    assert "no position" in run("consume", topic, "--from", "soon", status=2).stderr


def test_a_group_goes_on_where_it_was(run: Run, topic: str) -> None:
    run("topic", "create", topic)
    run("produce", topic, given="1\n2\n3\n")
    assert run("consume", topic, "-g", f"g-{topic}", "-n", "2").stdout == "1\n2\n"
    assert run("consume", topic, "-g", f"g-{topic}").stdout == "3\n"


def test_partitioners_spread_the_lines(run: Run, topic: str) -> None:
    run("topic", "create", topic, "-p", "4")
    run("produce", topic, "--partitioner", "round-robin", given="x\n" * 8)
    described = json.loads(run("topic", "describe", topic, "--json").stdout)
    assert [each["end_offset"] for each in described["partitions"]] == [2, 2, 2, 2]
    run("produce", topic, "--partitioner", "rack-aware", given="x\n", status=2)


def test_what_does_not_fit_is_told_with_its_line(run: Run, topic: str) -> None:
    run("topic", "create", topic)
    assert "line 2" in run("produce", topic, "-K", ":", given="a:1\nnokey\n", status=1).stderr
    bad = '{"value": 1}\n{"valu": 2}\n'
    assert "line 2" in run("produce", topic, "--format", "json", given=bad, status=1).stderr
    assert "does not exist" in run("consume", f"{topic}-none", status=3).stderr


def test_a_line_is_sent_while_the_input_stays_open(broker: Broker, topic: str, run: Run) -> None:
    run("topic", "create", topic)
    where = ("-b", broker.bootstrap_servers)
    with (
        _started("consume", topic, "-f", "-n", "2", *where) as reader,
        _started("produce", topic, *where) as writer,
    ):
        assert reader.stdout is not None
        assert writer.stdin is not None
        for line in ("one\n", "two\n"):
            writer.stdin.write(line)
            writer.stdin.flush()
            assert reader.stdout.readline() == line
        writer.stdin.close()
        assert writer.wait(30) == 0
        assert reader.wait(30) == 0


def test_follow_ends_well_when_it_is_interrupted(broker: Broker, topic: str, run: Run) -> None:
    run("topic", "create", topic)
    run("produce", topic, given="1\n")
    for group in ((), ("-g", f"g-{topic}")):
        with _started("consume", topic, "-f", *group, "-b", broker.bootstrap_servers) as reader:
            assert reader.stdout is not None
            assert reader.stdout.readline() == "1\n"
            reader.send_signal(signal.SIGINT)
            assert reader.wait(30) == 0
    described = json.loads(run("group", "describe", f"g-{topic}", "--json").stdout)
    assert (described["state"], described["lag"]) == ("empty", 0)


def test_two_readers_of_a_group_share_a_topic(broker: Broker, topic: str, run: Run) -> None:
    run("topic", "create", topic, "-p", "2")
    command = ("consume", topic, "-g", f"g-{topic}", "-f", "-b", broker.bootstrap_servers)
    settings = ("--client", "heartbeat.interval.ms=100", "--client", "session.timeout.ms=6000")
    with _started(*command, *settings) as first, _started(*command, *settings) as second:

        def members() -> list[int]:
            described = Groups(client).describe(f"g-{topic}")
            return [len(member.partitions) for member in described.members]

        with Cluster(broker.bootstrap_servers) as cluster:
            client = ClusterClient(cluster, 30.0)
            while members() != [1, 1]:
                time.sleep(0.05)
        run("produce", topic, "--partitioner", "round-robin", given="a\nb\n")
        assert first.stdout is not None
        assert second.stdout is not None
        assert {first.stdout.readline(), second.stdout.readline()} == {"a\n", "b\n"}


@pytest.mark.parametrize("acks", ["0", "1", "all"])
@pytest.mark.parametrize("compression", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_acks_and_compressions(run: Run, topic: str, acks: str, compression: str) -> None:
    run("topic", "create", topic)
    run("produce", topic, "--acks", acks, "-z", compression, given="one\ntwo\n")
    assert run("consume", topic).stdout == "one\ntwo\n"


def test_a_topic_can_be_made_by_producing_to_it(run: Run, topic: str) -> None:
    run("produce", topic, given="one\n")
    assert run("consume", topic, "-p", "0").stdout == "one\n"


def test_partitions_keys_and_tombstones(run: Run, topic: str) -> None:
    run("topic", "create", topic, "-p", "3")
    run("produce", topic, "-p", "2", "-k", "key", "--null", "gone", given="here\ngone\n")
    lines = run("consume", topic, "--json", "-p", "2").stdout.splitlines()
    records = [(each["key"], each["value"]) for each in map(json.loads, lines)]
    assert records == [("key", "here"), ("key", None)]
    assert (
        f"{topic} has no partition 3, it has 3"
        in run("produce", topic, "-p", "3", given="x\n", status=1).stderr
    )
    assert "has no partition 3" in run("consume", topic, "-p", "3", status=3).stderr


def test_settings_of_the_client(run: Run, topic: str) -> None:
    run("topic", "create", topic)
    for setting in ("client.id=me", "batch.size=20", "delivery.timeout.ms=5000"):
        run("produce", topic, "--client", setting, given="a\nb\n")
    run("produce", topic, "--client", "enable.idempotence=false", given="a\nb\n")
    assert run("consume", topic, "--client", "fetch.max.bytes=1").stdout == "a\nb\n" * 4
    latest = ("-g", f"g-{topic}", "--client", "auto.offset.reset=latest")
    assert run("consume", topic, *latest).stdout == ""


@pytest.mark.parametrize(
    ("command", "setting", "told"),
    [
        ("produce", "linger.ms=5", "--client linger.ms is not supported: this command knows"),
        ("consume", "sasl.username=me", "--client sasl.username is not supported"),
        ("consume", "security.protocol=SSL", "this command speaks PLAINTEXT only"),
        ("produce", "batch.size=none", "--client batch.size=none: a whole number from 1"),
        ("produce", "enable.idempotence=1", "--client enable.idempotence=1: true or false"),
        ("consume", "auto.offset.reset=now", "one of earliest, latest, error is expected"),
    ],
)
def test_settings_that_are_not_known_are_named(
    run: Run, topic: str, command: str, setting: str, told: str
) -> None:
    assert told in run(command, topic, "--client", setting, status=1).stderr


def test_lines_before_one_that_does_not_fit_are_sent(run: Run, topic: str) -> None:
    run("topic", "create", topic)
    run("produce", topic, "-K", ":", given="a:1\nnokey\n", status=1)
    assert run("consume", topic).stdout == "1\n"
    for bad in ('{"value": "x", "partition": "one"}', '{"value": 1, "encoding": "base64"}'):
        done = run("produce", topic, "--format", "json", given=bad, status=1)
        assert done.stderr.startswith("error: line 1: ")


def test_a_broker_that_is_away_is_one_line() -> None:
    for command in ("produce", "consume"):
        done = run_command(command, "topic", given="x\n")
        assert done.returncode == 1
        assert done.stderr.startswith("error: no broker answers at 127.0.0.1:1")
        assert "Traceback" not in done.stderr


def test_any_number_may_be_the_time_of_a_record(run: Run, topic: str) -> None:
    run("topic", "create", topic, "-s", "message.timestamp.after.max.ms=9223372036854775807")
    entries = [{"value": "a", "timestamp": 0}, {"value": "b", "timestamp": 2**60}]
    run("produce", topic, "--format", "json", given="\n".join(map(json.dumps, entries)))
    first, second = run("consume", topic, "--format", "full").stdout.splitlines()
    assert first == "0:0 1970-01-01 00:00:00.000+00:00\t\ta"
    assert second == f"0:1 @{2**60}\t\tb"


@contextmanager
def _started(*arguments: str) -> Iterator[subprocess.Popen[str]]:
    with subprocess.Popen(
        [*INTERRUPTIBLE, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            yield process
        finally:
            process.kill()
