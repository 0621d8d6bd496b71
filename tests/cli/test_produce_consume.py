"""`tidelog produce` and `tidelog consume`."""

import json

from tests.cli.conftest import Run


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
