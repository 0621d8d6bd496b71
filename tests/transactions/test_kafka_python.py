"""Transactions with kafka-python."""

from __future__ import annotations

import pytest
from kafka import KafkaConsumer, KafkaProducer, OffsetAndMetadata, TopicPartition
from kafka.errors import KafkaError

from tests.transactions.reading import wait_for


def producer(bootstrap: str, transactional_id: str) -> KafkaProducer:
    made = KafkaProducer(
        bootstrap_servers=bootstrap, transactional_id=transactional_id, max_block_ms=30_000
    )
    made.init_transactions()
    return made


def test_committed_records_are_seen_and_aborted_ones_are_not(bootstrap: str, topic: str) -> None:
    writer = producer(bootstrap, topic)
    try:
        for number in range(4):
            writer.begin_transaction()
            writer.send(topic, b"%d" % number, partition=0)
            writer.flush()
            if number % 2:
                writer.abort_transaction()
            else:
                writer.commit_transaction()
    finally:
        writer.close()
    assert wait_for(bootstrap, topic, 2) == [[b"0", b"2"], []]
    reader = KafkaConsumer(
        bootstrap_servers=bootstrap,
        isolation_level="read_committed",
        auto_offset_reset="earliest",
        consumer_timeout_ms=10_000,
    )
    try:
        reader.assign([TopicPartition(topic, 0)])
        values = [next(reader).value, next(reader).value]
        assert values == [b"0", b"2"]
    finally:
        reader.close()


def test_a_new_producer_fences_the_old_one(bootstrap: str, topic: str) -> None:
    old = producer(bootstrap, topic)
    old.begin_transaction()
    old.send(topic, b"old", partition=0).get(30)
    new = producer(bootstrap, topic)
    try:
        with pytest.raises(KafkaError):
            old.commit_transaction()
        new.begin_transaction()
        new.send(topic, b"new", partition=0)
        new.commit_transaction()
    finally:
        new.close()
        old.close(timeout=1)
    assert wait_for(bootstrap, topic, 1) == [[b"new"], []]


def test_offsets_are_committed_with_the_transaction(bootstrap: str, topic: str) -> None:
    group = f"group-of-{topic}"
    writer = producer(bootstrap, topic)
    reader = KafkaConsumer(bootstrap_servers=bootstrap, group_id=group, enable_auto_commit=False)
    place = TopicPartition(topic, 0)
    try:
        writer.begin_transaction()
        writer.send(topic, b"out", partition=1)
        writer.send_offsets_to_transaction({place: OffsetAndMetadata(7, "note", -1)}, group)
        writer.commit_transaction()
        assert reader.committed(place) == 7
    finally:
        writer.close()
        reader.close()
