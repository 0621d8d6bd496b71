"""The worker loop: retries, dead letters, and commits that come last."""

import threading

import pytest

from tidelog.client import Backoff, Client, ClientError, Message, Worker, connect
from tidelog.client.serializers import JsonSerializer
from tidelog.testing import Broker

QUICK = Backoff(first_s=0.01, factor=2, longest_s=0.05)


def publish(client: Client, topic: str, *values: bytes) -> None:
    for value in values:
        client.publish(topic, key="k", value=value)
    client.flush()


def read_dead(client: Client, topic: str, count: int) -> list[Message]:
    found: list[Message] = []
    with client.consume(topic, f"dead-{topic}", idle_timeout_s=20) as subscription:
        for batch in subscription:
            found += batch
            if len(found) >= count:
                break
    return found


def test_every_message_is_handled_in_order_and_committed(client: Client, topic: str) -> None:
    publish(client, topic, *(b"%d" % i for i in range(50)))
    seen: list[bytes] = []
    worker = Worker(client, topic, f"w-{topic}", lambda message: seen.append(message.value))
    report = worker.run(idle_timeout_s=2)
    assert seen == [b"%d" % i for i in range(50)]
    assert report.handled == 50
    again = Worker(client, topic, f"w-{topic}", lambda message: seen.append(message.value))
    assert again.run(idle_timeout_s=2).handled == 0


def test_a_message_that_fails_twice_is_tried_again(client: Client, topic: str) -> None:
    publish(client, topic, b"a", b"b")
    tries: list[bytes] = []

    def handle(message: Message) -> None:
        tries.append(message.value)
        if message.value == b"a" and tries.count(b"a") < 3:
            raise RuntimeError("not yet")

    worker = Worker(client, topic, f"w-{topic}", handle, backoff=QUICK)
    report = worker.run(idle_timeout_s=2)
    assert tries == [b"a", b"a", b"a", b"b"]
    assert (report.handled, report.retried) == (2, 2)


def test_a_message_that_keeps_failing_becomes_a_dead_letter(client: Client, topic: str) -> None:
    dead = f"{topic}-dead"
    client.create_topic(dead, partitions=1)
    publish(client, topic, b"good", b"poison", b"good")

    def handle(message: Message) -> None:
        if message.value == b"poison":
            raise ValueError("I do not like it")

    worker = Worker(
        client, topic, f"w-{topic}", handle, tries=3, backoff=QUICK, dead_letter_topic=dead
    )
    report = worker.run(idle_timeout_s=2)
    assert (report.handled, report.dead_lettered) == (2, 1)
    (letter,) = read_dead(client, dead, 1)
    assert letter.value == b"poison"
    assert letter.header("tidelog.dead-letter.topic") == topic.encode()
    assert letter.header("tidelog.dead-letter.offset") == b"1"
    assert letter.header("tidelog.dead-letter.tries") == b"3"
    assert letter.header("tidelog.dead-letter.error") == b"ValueError: I do not like it"


def test_bytes_that_do_not_parse_are_a_dead_letter_at_once(broker: Broker, topic: str) -> None:
    dead = f"{topic}-dead"
    with connect(broker.bootstrap_servers) as plain:
        plain.create_topic(dead, partitions=1)
        publish(plain, topic, b"1", b"{broken", b"3")
        seen: list[int] = []
        with connect(broker.bootstrap_servers, value_serializer=JsonSerializer(int)) as typed:
            worker = Worker(
                typed,
                topic,
                f"w-{topic}",
                lambda message: seen.append(message.value),
                dead_letter_topic=dead,
            )
            worker.run(idle_timeout_s=2)
        assert seen == [1, 3]
        (letter,) = read_dead(plain, dead, 1)
        assert letter.value == b"{broken"


def test_without_a_dead_letter_topic_the_worker_stops_and_nothing_is_lost(
    client: Client, topic: str
) -> None:
    publish(client, topic, b"good", b"poison", b"later")

    def handle(message: Message) -> None:
        if message.value == b"poison":
            raise ValueError("no")

    worker = Worker(client, topic, f"w-{topic}", handle, tries=2, backoff=QUICK)
    with pytest.raises(ClientError, match="offset 1 failed 2 times"):
        worker.run(idle_timeout_s=2)
    seen: list[bytes] = []
    again = Worker(client, topic, f"w-{topic}", lambda message: seen.append(message.value))
    again.run(idle_timeout_s=2)
    assert seen == [b"poison", b"later"]


def test_stop_ends_the_loop_from_another_thread(client: Client, topic: str) -> None:
    handled = threading.Event()
    worker = Worker(client, topic, f"w-{topic}", lambda message: handled.set())
    thread = threading.Thread(target=worker.run)
    thread.start()
    publish(client, topic, b"x")
    assert handled.wait(30)
    worker.stop()
    thread.join(30)
    assert not thread.is_alive()


def test_pauses_grow_and_stay_bounded() -> None:
    backoff = Backoff(first_s=1, factor=2, longest_s=5)
    assert [backoff.pause_s(failures) for failures in (1, 2, 3, 4, 1000)] == [1, 2, 4, 5, 5]
