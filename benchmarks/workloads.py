"""What a client does to a broker in a measurement; each runs in a process of its own.

`python -m benchmarks.workloads NAME JSON` prints one JSON object. The client is librdkafka with
the same settings whatever the broker is.
"""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from benchmarks.raw import RawResult, fetch_bulk, produce_bulk, produce_one_record_requests

_TIMEOUT_S = 300.0
FETCH_BYTES = 4_194_304


def run_workload(name: str, **arguments: Any) -> dict[str, Any]:
    """Run a workload in a new process and give its result back."""
    command = [sys.executable, "-m", "benchmarks.workloads", name, json.dumps(arguments)]
    done = subprocess.run(
        command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=_TIMEOUT_S
    )
    if done.returncode:
        raise RuntimeError(f"workload {name} failed: {done.stderr[-2000:]}")
    result: dict[str, Any] = json.loads(done.stdout)
    return result


def create_topic(
    bootstrap: str,
    topic: str,
    partitions: int,
    config: dict[str, str],
    replicas: int = 1,
    assignment: list[list[int]] | None = None,
) -> None:
    """Create a topic and wait until its partitions have leaders.

    `assignment` places the replicas of each partition; without it the cluster does.
    """
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    placed = (
        {"replication_factor": replicas}
        if assignment is None
        else {"replica_assignment": assignment}
    )
    new = NewTopic(topic, num_partitions=partitions, config=config, **placed)
    admin.create_topics([new], operation_timeout=60)[topic].result(120)
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        found = admin.list_topics(topic, timeout=30).topics[topic].partitions
        if len(found) == partitions and all(each.leader >= 0 for each in found.values()):
            return
        time.sleep(0.05)
    raise RuntimeError(f"{topic} has no leaders")


def delete_topics(bootstrap: str, topics: list[str]) -> None:
    """Delete topics; their files go a little later."""
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    for deleted in admin.delete_topics(topics, operation_timeout=60).values():
        deleted.result(120)


def _produce(
    bootstrap: str, topic: str, records: int, size: int, settings: dict[str, Any]
) -> dict[str, Any]:
    """Publish as fast as it goes; the time is until the last acknowledgement."""
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "acks": "1",
            "linger.ms": 5,
            "batch.size": 1_000_000,
            "queue.buffering.max.messages": 500_000,
            "queue.buffering.max.kbytes": 524_288,
            **settings,
        }
    )
    failures: list[KafkaError] = []
    producer.list_topics(topic, timeout=30)
    value = os.urandom(size)
    produce, poll = producer.produce, producer.poll

    def delivered(error: KafkaError | None, _message: Message) -> None:
        if error is not None:
            failures.append(error)

    start = time.perf_counter()
    for number in range(records):
        while True:
            try:
                if number & 1023:
                    produce(topic, value)
                else:
                    produce(topic, value, on_delivery=delivered)
                    poll(0)
                break
            except BufferError:
                poll(0.01)
    left = producer.flush(_TIMEOUT_S)
    seconds = time.perf_counter() - start
    if left or failures:
        raise RuntimeError(f"{left} records left, {len(failures)} failed")
    return {"seconds": seconds, "megabytes": records * size / 1e6, "records": records}


def _consume(bootstrap: str, topic: str, partitions: int, records: int) -> dict[str, Any]:
    """Read a topic from its beginning; the time is from the first record to the last."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "benchmark",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "fetch.message.max.bytes": FETCH_BYTES,
            "queued.max.messages.kbytes": 262_144,
        }
    )
    consumer.assign([TopicPartition(topic, number, 0) for number in range(partitions)])
    seen = size_bytes = 0
    start = 0.0
    deadline = time.monotonic() + _TIMEOUT_S
    while seen < records and time.monotonic() < deadline:
        batch = consumer.consume(5000, 1.0)
        if batch and not start:
            start = time.perf_counter()
        for message in batch:
            if message.error() is not None:
                raise KafkaException(message.error())
            size_bytes += len(message.value())
        seen += len(batch)
    seconds = time.perf_counter() - start
    consumer.close()
    if seen < records:
        raise RuntimeError(f"only {seen} of {records} records came")
    return {"seconds": seconds, "megabytes": size_bytes / 1e6, "records": seen}


def _paced(
    bootstrap: str,
    topic: str,
    megabytes_per_s: float,
    size: int,
    seconds: float,
    acks: str = "1",
) -> dict[str, Any]:
    """Publish at a fixed rate and measure each record until its acknowledgement."""
    producer = Producer({"bootstrap.servers": bootstrap, "acks": acks, "linger.ms": 1})
    producer.list_topics(topic, timeout=30)
    value = os.urandom(size)
    per_tick = max(1, round(megabytes_per_s * 1e6 / size / 1000))
    latencies: list[float] = []
    clock = time.perf_counter

    def sampled(sent_at: float) -> Callable[[KafkaError | None, Message], None]:
        def report(error: KafkaError | None, _message: Message) -> None:
            if error is not None:
                raise KafkaException(error)
            latencies.append(clock() - sent_at)

        return report

    start = clock()
    ticks = round(seconds * 1000)
    for tick in range(ticks):
        due = start + tick / 1000
        while clock() < due:
            producer.poll(0.0002)
        producer.produce(topic, value, on_delivery=sampled(clock()))
        for _ in range(per_tick - 1):
            producer.produce(topic, value)
        producer.poll(0)
    producer.flush(60)
    taken = clock() - start
    # In the first second the connection is new and the client's threads start.
    latencies = latencies[min(1000, len(latencies) // 4) :]
    return {
        "megabytes_per_s": ticks * per_tick * size / 1e6 / taken,
        "megabytes": ticks * per_tick * size / 1e6,
        **_percentiles(latencies),
    }


def _one_at_a_time(
    bootstrap: str, topic: str, size: int, seconds: float, acks: str = "1"
) -> dict[str, Any]:
    """One producer that waits for each acknowledgement before the next record."""
    producer = Producer(
        {"bootstrap.servers": bootstrap, "acks": acks, "linger.ms": 0, "socket.nagle.disable": True}
    )
    producer.list_topics(topic, timeout=30)
    value = os.urandom(size)
    latencies: list[float] = []
    clock = time.perf_counter
    start = clock()
    while clock() - start < seconds:
        sent_at = clock()
        producer.produce(topic, value)
        if producer.flush(30):
            raise RuntimeError("no acknowledgement within 30 s")
        latencies.append(clock() - sent_at)
    taken = clock() - start
    return {
        "requests": len(latencies),
        "requests_per_s": len(latencies) / taken,
        **_percentiles(latencies),
    }


def _end_to_end(bootstrap: str, topic: str, size: int, rate: int, seconds: float) -> dict[str, Any]:
    """Publish at a low rate and measure until a consumer has each record."""
    producer = Producer({"bootstrap.servers": bootstrap, "acks": "1", "linger.ms": 0})
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "benchmark", "fetch.wait.max.ms": 100}
    )
    consumer.assign([TopicPartition(topic, 0, 0)])
    padding = bytes(size - 8)
    latencies: list[float] = []
    total = round(rate * seconds)
    sent = seen = 0
    start = time.perf_counter()
    while seen < total:
        now = time.perf_counter()
        if now - start > seconds + 60:
            raise RuntimeError(f"only {seen} of {total} records came back")
        while sent < total and now >= start + sent / rate:
            stamp = time.perf_counter_ns().to_bytes(8, "big")
            producer.produce(topic, stamp + padding, partition=0)
            sent += 1
        producer.poll(0)
        for message in consumer.consume(100, 0.0005):
            if message.error() is not None:
                continue
            latencies.append(
                (time.perf_counter_ns() - int.from_bytes(message.value()[:8], "big")) / 1e9
            )
            seen += 1
    consumer.close()
    return {"records": total, **_percentiles(latencies[len(latencies) // 5 :])}


def _first_acknowledgement(bootstrap: str, topic: str) -> dict[str, Any]:
    """Wait until the broker has acknowledged one record; the caller takes the time."""
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "reconnect.backoff.ms": 5,
            "reconnect.backoff.max.ms": 10,
            "retry.backoff.ms": 10,
            "topic.metadata.refresh.fast.interval.ms": 10,
            "log_level": 0,
        }
    )
    producer.produce(topic, b"first")
    if producer.flush(90):
        raise RuntimeError("no acknowledgement within 90 s")
    return {}


def _one_record_requests(bootstrap: str, topic: str, seconds: float, size: int) -> dict[str, Any]:
    """Pipelined requests of one record each, by a client on raw sockets."""
    host, _, port = bootstrap.rpartition(":")
    result = produce_one_record_requests(host, int(port), topic, seconds=seconds, value_bytes=size)
    return {
        "requests": result.requests,
        "requests_per_s": result.requests / result.seconds,
    }


def _raw_produce(bootstrap: str, topic: str, megabytes: float, acks: int = 1) -> dict[str, Any]:
    """Batches of 1 MB by a client on raw sockets, which costs little itself."""
    host, _, port = bootstrap.rpartition(":")
    size_bytes = round(megabytes * 1e6)
    result = produce_bulk(host, int(port), topic, 1, size_bytes_total=size_bytes, acks=acks)
    return _raw_result(result)


def _raw_consume(bootstrap: str, topic: str, megabytes: float) -> dict[str, Any]:
    """A fetch of 4 MB after the other by a client on raw sockets."""
    host, _, port = bootstrap.rpartition(":")
    result = fetch_bulk(
        host,
        int(port),
        topic,
        1,
        size_bytes_total=round(megabytes * 1e6),
        partition_max_bytes=FETCH_BYTES,
    )
    return _raw_result(result)


def _raw_result(result: RawResult) -> dict[str, Any]:
    return {"seconds": result.seconds, "megabytes": result.size_bytes / 1e6}


def _percentiles(latencies_s: list[float]) -> dict[str, float]:
    ordered = sorted(latencies_s)
    last = len(ordered) - 1
    shares = {"p50_ms": 0.5, "p99_ms": 0.99, "p99_9_ms": 0.999}
    return {
        name: ordered[min(last, int(len(ordered) * share))] * 1000 for name, share in shares.items()
    }


WORKLOADS: dict[str, Callable[..., dict[str, Any]]] = {
    "produce": _produce,
    "consume": _consume,
    "paced": _paced,
    "one-at-a-time": _one_at_a_time,
    "end-to-end": _end_to_end,
    "one-record-requests": _one_record_requests,
    "raw-produce": _raw_produce,
    "raw-consume": _raw_consume,
    "first-acknowledgement": _first_acknowledgement,
}

if __name__ == "__main__":
    print(json.dumps(WORKLOADS[sys.argv[1]](**json.loads(sys.argv[2]))))
