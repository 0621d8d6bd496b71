"""Transactions with librdkafka."""

from __future__ import annotations

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

from tests.transactions.reading import read_topic, wait_for

WAIT_S = 30


def producer(bootstrap: str, transactional_id: str, **settings: object) -> Producer:
    return Producer(
        {
            "bootstrap.servers": bootstrap,
            "transactional.id": transactional_id,
            "linger.ms": 0,
            **settings,
        }
    )


def test_committed_records_are_seen_and_aborted_ones_are_not(bootstrap: str, topic: str) -> None:
    writer = producer(bootstrap, topic)
    writer.init_transactions(WAIT_S)
    for number in range(6):
        writer.begin_transaction()
        writer.produce(topic, b"%d" % number, partition=0)
        writer.produce(topic, b"%d" % number, partition=1)
        writer.flush(WAIT_S)
        if number % 2:
            writer.abort_transaction(WAIT_S)
        else:
            writer.commit_transaction(WAIT_S)

    assert wait_for(bootstrap, topic, 6) == [[b"0", b"2", b"4"]] * 2
    uncommitted = read_topic(bootstrap, topic, isolation="read_uncommitted")
    assert uncommitted == [[b"%d" % number for number in range(6)]] * 2


def test_an_open_transaction_holds_back_what_follows_it(bootstrap: str, topic: str) -> None:
    writer = producer(bootstrap, topic)
    writer.init_transactions(WAIT_S)
    writer.begin_transaction()
    writer.produce(topic, b"open", partition=0)
    writer.flush(WAIT_S)
    plain = Producer({"bootstrap.servers": bootstrap})
    plain.produce(topic, b"after", partition=0)
    plain.flush(WAIT_S)

    assert read_topic(bootstrap, topic) == [[], []]
    writer.commit_transaction(WAIT_S)
    assert wait_for(bootstrap, topic, 2) == [[b"open", b"after"], []]


def test_empty_transactions_succeed(bootstrap: str, topic: str) -> None:
    writer = producer(bootstrap, topic)
    writer.init_transactions(WAIT_S)
    for _ in range(3):
        writer.begin_transaction()
        writer.commit_transaction(WAIT_S)
        writer.begin_transaction()
        writer.abort_transaction(WAIT_S)


def test_a_new_producer_fences_the_old_one(bootstrap: str, topic: str) -> None:
    old = producer(bootstrap, topic)
    old.init_transactions(WAIT_S)
    old.begin_transaction()
    old.produce(topic, b"of the old one", partition=0)
    old.flush(WAIT_S)
    new = producer(bootstrap, topic)
    new.init_transactions(WAIT_S)

    with pytest.raises(KafkaException) as caught:
        old.commit_transaction(WAIT_S)

    assert caught.value.args[0].fatal()
    new.begin_transaction()
    new.produce(topic, b"of the new one", partition=0)
    new.commit_transaction(WAIT_S)
    assert wait_for(bootstrap, topic, 1) == [[b"of the new one"], []]


def test_a_transaction_that_takes_too_long_is_rolled_back(bootstrap: str, topic: str) -> None:
    slow = producer(bootstrap, topic, **{"transaction.timeout.ms": 1000})
    slow.init_transactions(WAIT_S)
    slow.begin_transaction()
    slow.produce(topic, b"slow", partition=0)
    slow.flush(WAIT_S)
    plain = Producer({"bootstrap.servers": bootstrap})
    plain.produce(topic, b"after", partition=0)
    plain.flush(WAIT_S)

    assert wait_for(bootstrap, topic, 1) == [[b"after"], []]
    with pytest.raises(KafkaException):
        slow.commit_transaction(WAIT_S)


def test_offsets_are_committed_with_the_transaction(bootstrap: str, topic: str) -> None:
    group = f"group-of-{topic}"
    reader = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
        }
    )
    reader.subscribe([topic])
    plain = Producer({"bootstrap.servers": bootstrap})
    plain.produce(topic, b"in", partition=0)
    plain.flush(WAIT_S)
    message = reader.poll(WAIT_S)
    assert message is not None
    assert message.error() is None
    writer = producer(bootstrap, topic)
    writer.init_transactions(WAIT_S)

    def offset() -> int:
        [found] = reader.committed([TopicPartition(topic, 0)], WAIT_S)
        return int(found.offset)

    for commit, expected in ((False, -1001), (True, 1)):
        writer.begin_transaction()
        writer.produce(topic, b"out", partition=1)
        writer.send_offsets_to_transaction(
            [TopicPartition(topic, 0, 1)], reader.consumer_group_metadata(), WAIT_S
        )
        if commit:
            writer.commit_transaction(WAIT_S)
        else:
            writer.abort_transaction(WAIT_S)
        assert offset() == expected  # a fetch of offsets waits for the pending ones
    reader.close()
    assert wait_for(bootstrap, topic, 2) == [[b"in"], [b"out"]]


def test_many_small_transactions_in_a_row(bootstrap: str, topic: str) -> None:
    """Each meets the end of the one before it."""
    writer = producer(bootstrap, topic)
    writer.init_transactions(WAIT_S)
    for number in range(50):
        writer.begin_transaction()
        writer.produce(topic, b"%d" % number, partition=number % 2)
        writer.commit_transaction(WAIT_S)
    assert wait_for(bootstrap, topic, 50) == [
        [b"%d" % number for number in range(0, 50, 2)],
        [b"%d" % number for number in range(1, 50, 2)],
    ]
