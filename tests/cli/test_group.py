"""`tidelog group`."""

import json

from tests.cli.conftest import Run


def test_a_group_is_listed_described_reset_and_deleted(run: Run, topic: str) -> None:
    group = f"group-{topic}"
    run("topic", "create", topic)
    run("produce", topic, given="1\n2\n3\n4\n")
    run("consume", topic, "-g", group, "-n", "3")
    listed = json.loads(run("group", "list", "--json").stdout)
    assert group in [each["group"] for each in listed]
    view = json.loads(run("group", "describe", group, "--json").stdout)
    assert view["state"] == "empty"
    assert view["lag"] == 1
    (row,) = view["partitions"]
    assert (row["topic"], row["partition"], row["committed"], row["end_offset"]) == (topic, 0, 3, 4)
    plan = json.loads(run("group", "reset-offsets", group, "--to", "1", "--json").stdout)
    assert plan == [{"topic": topic, "partition": 0, "committed": 3, "new": 1}]
    assert json.loads(run("group", "describe", group, "--json").stdout)["lag"] == 1
    run("group", "reset-offsets", group, "--to", "beginning", "--execute")
    assert json.loads(run("group", "describe", group, "--json").stdout)["lag"] == 4
    assert topic in run("group", "describe", group).stdout
    run("group", "delete", group)
    run("group", "describe", group, status=3)


def test_offsets_are_not_reset_in_a_topic_that_does_not_exist(run: Run, topic: str) -> None:
    group = f"deleted-{topic}"
    run("topic", "create", topic)
    run("produce", topic, given="1\n")
    run("consume", topic, "-g", group, "-n", "1")
    run("topic", "delete", topic, "-y")
    done = run("group", "reset-offsets", group, "-t", topic, "--to", "end", status=3)
    assert f"the topic {topic} does not exist" in done.stderr
