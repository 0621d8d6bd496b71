"""`tidelog topic`."""

import json

from tests.cli.conftest import Run


def test_a_topic_from_creation_to_deletion(run: Run, topic: str) -> None:
    assert f"created {topic}" in run("topic", "create", topic, "-p", "3").stdout
    listed = json.loads(run("topic", "list", "--json").stdout)
    assert {"topic": topic, "partitions": 3, "replicas": 1, "internal": False} in listed
    run("topic", "alter", topic, "-p", "5", "--set", "retention.ms=60000")
    described = json.loads(run("topic", "describe", topic, "--json").stdout)
    assert len(described["partitions"]) == 5
    assert described["settings"]["retention.ms"] == "60000"
    run("topic", "alter", topic, "--unset", "retention.ms")
    assert (
        "retention.ms"
        not in json.loads(run("topic", "describe", topic, "--json").stdout)["settings"]
    )
    assert topic in run("topic", "describe", topic, "--all-settings").stdout
    run("topic", "delete", topic, "--yes")
    run("topic", "describe", topic, status=3)


def test_an_existing_topic_is_an_error_unless_allowed(run: Run, topic: str) -> None:
    run("topic", "create", topic)
    done = run("topic", "create", topic, status=1)
    assert "exists" in done.stderr
    assert "Traceback" not in done.stderr
    run("topic", "create", topic, "--if-not-exists")


def test_a_wrong_topic_setting_is_named(run: Run, topic: str) -> None:
    done = run("topic", "create", topic, "--set", "retention.msx=1", status=1)
    assert "retention.ms" in done.stderr
    run("topic", "create", topic, "--set", "novalue", status=2)


def test_deleting_what_is_not_there_is_told(run: Run) -> None:
    assert "does not exist" in run("topic", "delete", "nowhere", "-y", status=3).stderr


def test_settings_of_the_client_that_cannot_be_had_are_refused(run: Run) -> None:
    run("topic", "list", "--client", "client.id=me")
    done = run("topic", "list", "--client", "security.protocol=SASL_SSL", status=1)
    assert "PLAINTEXT only" in done.stderr
    done = run("topic", "list", "--client", "linger.ms=5", status=1)
    assert "--client linger.ms is not supported" in done.stderr
