"""A member of a group in a process of its own, so that it can be killed.

    python storm_member.py BOOTSTRAP GROUP TOPIC PROTOCOL EVENTS

It writes one line per event with the time of the machine's monotonic clock. An event is written
before its effect can reach anybody else: a partition is given up after the line that says so.
SIGTERM makes it leave.
"""

import os
import signal
import sys
import time

from confluent_kafka import Consumer, KafkaException, TopicPartition


def main() -> None:
    bootstrap, group, topic, protocol, path = sys.argv[1:]
    events = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def tell(event: str, *values: object) -> None:
        line = " ".join(map(str, (event, time.monotonic_ns(), *values)))
        os.write(events, line.encode() + b"\n")

    stopping = False

    def stop(*_: object) -> None:
        nonlocal stopping
        stopping = True

    signal.signal(signal.SIGTERM, stop)
    config = {
        "bootstrap.servers": bootstrap,
        "group.id": group,
        "group.protocol": protocol,
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
        "enable.auto.offset.store": False,
        "log_level": 2,
    }
    if protocol == "classic":
        config |= {
            "session.timeout.ms": 10_000,
            "heartbeat.interval.ms": 500,
            "partition.assignment.strategy": "cooperative-sticky",
        }
    consumer = Consumer(config)
    is_dirty = False

    def commit() -> None:
        nonlocal is_dirty
        if is_dirty:
            is_dirty = False
            try:
                consumer.commit(asynchronous=False)
            except KafkaException as error:
                tell("uncommitted", error.args[0].name())

    def on_assign(_: Consumer, partitions: list[TopicPartition]) -> None:
        for each in partitions:
            tell("assigned", each.partition)

    def on_revoke(_: Consumer, partitions: list[TopicPartition]) -> None:
        commit()
        for each in partitions:
            tell("revoked", each.partition)

    def on_lost(_: Consumer, partitions: list[TopicPartition]) -> None:
        for each in partitions:
            tell("lost", each.partition)

    consumer.subscribe([topic], on_assign=on_assign, on_revoke=on_revoke, on_lost=on_lost)
    tell("started")
    last_commit = time.monotonic()
    while not stopping:
        message = consumer.poll(0.1)
        if message is not None and message.error() is None:
            tell("processed", message.partition(), message.offset())
            consumer.store_offsets(message)
            is_dirty = True
        if time.monotonic() - last_commit > 0.5:
            last_commit = time.monotonic()
            commit()
    consumer.close()
    tell("left")


if __name__ == "__main__":
    main()
