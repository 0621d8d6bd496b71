"""`tidelog txn`."""

import json

import pytest
from confluent_kafka import KafkaException, Producer

from tests.cli.conftest import Run
from tidelog.testing import Broker


def test_transactions_are_listed_described_and_aborted(
    run: Run, broker: Broker, topic: str
) -> None:
    transactional_id = f"txn-{topic}"
    run("topic", "create", topic)
    producer = Producer(
        {
            "bootstrap.servers": broker.bootstrap_servers,
            "transactional.id": transactional_id,
            "transaction.timeout.ms": 60_000,
        }
    )
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(topic, b"open")
    producer.flush(30)
    rows = json.loads(run("txn", "list", "--state", "Ongoing", "--json").stdout)
    assert transactional_id in [row["transactional_id"] for row in rows]
    view = json.loads(run("txn", "describe", transactional_id, "--json").stdout)
    assert (view["state"], view["partitions"]) == ("Ongoing", [f"{topic}-0"])
    assert run("consume", topic).stdout == ""
    run("txn", "abort", transactional_id)
    view = json.loads(run("txn", "describe", transactional_id, "--json").stdout)
    assert view["state"] in ("CompleteAbort", "Empty")
    with pytest.raises(KafkaException):
        producer.commit_transaction(30)
    assert run("consume", topic).stdout == ""


def test_what_is_not_there_is_told(run: Run) -> None:
    done = run("txn", "describe", "no-such-id", status=3)
    assert "TRANSACTIONAL_ID_NOT_FOUND" in done.stderr
    run("txn", "abort", status=2)
