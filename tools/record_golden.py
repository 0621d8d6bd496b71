"""Records what real clients send, for tests/protocol/golden.

A scripted broker with one topic answers just enough for a client to produce a few records and
read them back; every request frame is kept as it came. Run it after a client library changes:

    python tools/record_golden.py [confluent kafka-python aiokafka]
"""

import asyncio
import json
import socket
import struct
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tidelog.protocol.api_keys import ApiKey
from tidelog.protocol.apis import (
    api_versions,
    create_topics,
    fetch,
    find_coordinator,
    init_producer_id,
    list_offsets,
    metadata,
    produce,
)
from tidelog.protocol.headers import RequestHeader, decode_request, encode_response
from tidelog.protocol.record_batch import read_header, stamp
from tidelog.protocol.registry import messages_of
from tidelog.protocol.schema import Message

GOLDEN = Path(__file__).parent.parent / "tests" / "protocol" / "golden"
TOPIC = "golden"
TOPIC_ID = bytes(range(1, 17))
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
# librdkafka sends lz4 only to a broker that also has coordinators.
SERVED = (
    ApiKey.PRODUCE,
    ApiKey.FETCH,
    ApiKey.LIST_OFFSETS,
    ApiKey.METADATA,
    ApiKey.FIND_COORDINATOR,
    ApiKey.API_VERSIONS,
    ApiKey.CREATE_TOPICS,
    ApiKey.INIT_PRODUCER_ID,
)


class ScriptedBroker:
    """Serves one topic of one partition from memory and keeps every request."""

    def __init__(self) -> None:
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self.listener.getsockname()[1]
        self.frames: list[tuple[RequestHeader, bytes]] = []
        self.log = bytearray()
        self.next_offset = 0
        self.lock = threading.Lock()
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self.listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with connection, connection.makefile("rb") as stream:
            while len(prefix := stream.read(4)) == 4:
                frame = stream.read(struct.unpack(">i", prefix)[0])
                header, request = decode_request(frame)
                with self.lock:
                    self.frames.append((header, frame))
                    response = self._answer(header, request)
                connection.sendall(
                    encode_response(
                        header.api_key, header.api_version, header.correlation_id, response
                    )
                )

    def _answer(self, header: RequestHeader, request: Any) -> Message:
        answers: dict[int, Callable[[Any], Message]] = {
            ApiKey.API_VERSIONS: self._api_versions,
            ApiKey.METADATA: self._metadata,
            ApiKey.FIND_COORDINATOR: self._find_coordinator,
            ApiKey.INIT_PRODUCER_ID: self._init_producer_id,
            ApiKey.PRODUCE: self._produce,
            ApiKey.LIST_OFFSETS: self._list_offsets,
            ApiKey.FETCH: self._fetch,
            ApiKey.CREATE_TOPICS: self._create_topics,
        }
        return answers[header.api_key](request)

    def _api_versions(self, request: Any) -> Message:
        return api_versions.ApiVersionsResponse(
            api_keys=[
                api_versions.ApiVersion(
                    api_key=key,
                    min_version=messages_of(key).request.MIN_VERSION,
                    max_version=messages_of(key).request.MAX_VERSION,
                )
                for key in SERVED
            ]
        )

    def _find_coordinator(self, request: find_coordinator.FindCoordinatorRequest) -> Message:
        coordinator = find_coordinator.Coordinator(
            key="golden", node_id=1, host="127.0.0.1", port=self.port
        )
        return find_coordinator.FindCoordinatorResponse(
            node_id=1, host="127.0.0.1", port=self.port, coordinators=[coordinator]
        )

    def _metadata(self, request: metadata.MetadataRequest) -> Message:
        partition = metadata.MetadataResponsePartition(
            leader_id=1, leader_epoch=0, replica_nodes=[1], isr_nodes=[1]
        )
        topic = metadata.MetadataResponseTopic(
            name=TOPIC, topic_id=TOPIC_ID, partitions=[partition]
        )
        broker = metadata.MetadataResponseBroker(node_id=1, host="127.0.0.1", port=self.port)
        return metadata.MetadataResponse(
            brokers=[broker], cluster_id="golden", controller_id=1, topics=[topic]
        )

    def _init_producer_id(self, request: Any) -> Message:
        return init_producer_id.InitProducerIdResponse(producer_id=7, producer_epoch=0)

    def _produce(self, request: produce.ProduceRequest) -> Message:
        responses = []
        for topic in request.topic_data:
            rows = []
            for data in topic.partition_data:
                batch = bytearray(data.records or b"")
                stamp(batch, 0, self.next_offset, 0)
                rows.append(
                    produce.PartitionProduceResponse(
                        index=data.index, base_offset=self.next_offset, log_start_offset=0
                    )
                )
                self.next_offset = read_header(batch, 0).next_offset
                self.log += batch
            responses.append(
                produce.TopicProduceResponse(
                    name=topic.name, topic_id=topic.topic_id, partition_responses=rows
                )
            )
        return produce.ProduceResponse(responses=responses)

    def _list_offsets(self, request: list_offsets.ListOffsetsRequest) -> Message:
        row = list_offsets.ListOffsetsPartitionResponse
        topic = list_offsets.ListOffsetsTopicResponse
        return list_offsets.ListOffsetsResponse(
            topics=[
                topic(
                    name=each.name,
                    partitions=[
                        row(partition_index=p.partition_index, offset=0, leader_epoch=0)
                        for p in each.partitions
                    ],
                )
                for each in request.topics
            ]
        )

    def _fetch(self, request: fetch.FetchRequest) -> Message:
        return fetch.FetchResponse(
            responses=[
                fetch.FetchableTopicResponse(
                    topic=each.topic,
                    topic_id=each.topic_id,
                    partitions=[
                        fetch.PartitionData(
                            partition_index=p.partition,
                            high_watermark=self.next_offset,
                            last_stable_offset=self.next_offset,
                            log_start_offset=0,
                            aborted_transactions=None,
                            records=b"" if p.fetch_offset >= self.next_offset else self.log,
                        )
                        for p in each.partitions
                    ],
                )
                for each in request.topics
            ]
        )

    def _create_topics(self, request: create_topics.CreateTopicsRequest) -> Message:
        return create_topics.CreateTopicsResponse(
            topics=[
                create_topics.CreatableTopicResult(name=each.name, topic_id=TOPIC_ID)
                for each in request.topics
            ]
        )


def record_confluent(broker: ScriptedBroker) -> None:
    from confluent_kafka import Consumer, Producer, TopicPartition
    from confluent_kafka.admin import AdminClient, NewTopic

    for codec in CODECS:
        settings = {"compression.type": codec, "linger.ms": 20, "enable.idempotence": True}
        producer = Producer({"bootstrap.servers": broker.address, **settings})
        for index in range(3):
            producer.produce(TOPIC, **record_of(codec, index))
        producer.flush(10)
    admin = AdminClient({"bootstrap.servers": broker.address})
    admin.create_topics([NewTopic("made", 3, config={"retention.ms": "1000"})])["made"].result(10)
    consumer = Consumer({"bootstrap.servers": broker.address, "group.id": "golden"})
    consumer.assign([TopicPartition(TOPIC, 0, 0)])
    assert consumer.poll(10) is not None
    consumer.close()


def record_kafka_python(broker: ScriptedBroker) -> None:
    from kafka import KafkaConsumer, KafkaProducer, TopicPartition

    for codec in CODECS:
        if codec == "snappy":  # it needs a library that compiles on install
            continue
        producer = KafkaProducer(
            bootstrap_servers=broker.address,
            compression_type=None if codec == "none" else codec,
            linger_ms=20,
        )
        for index in range(3):
            record = record_of(codec, index)
            producer.send(
                TOPIC,
                partition=0,
                key=record["key"],
                value=record["value"],
                headers=record["headers"],
                timestamp_ms=record["timestamp"],
            )
        producer.flush(10)
        producer.close()
    consumer = KafkaConsumer(bootstrap_servers=broker.address, auto_offset_reset="earliest")
    consumer.assign([TopicPartition(TOPIC, 0)])
    assert consumer.poll(10000)
    consumer.close()


def record_aiokafka(broker: ScriptedBroker) -> None:
    from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition

    async def run() -> None:
        for codec in CODECS:
            producer = AIOKafkaProducer(
                bootstrap_servers=broker.address,
                compression_type=None if codec == "none" else codec,
                linger_ms=20,
            )
            await producer.start()
            waits = [
                await producer.send(
                    TOPIC,
                    partition=0,
                    key=record["key"],
                    value=record["value"],
                    headers=record["headers"],
                    timestamp_ms=record["timestamp"],
                )
                for record in (record_of(codec, index) for index in range(3))
            ]
            await asyncio.gather(*waits)
            await producer.stop()
        consumer = AIOKafkaConsumer(bootstrap_servers=broker.address)
        await consumer.start()
        consumer.assign([TopicPartition(TOPIC, 0)])
        await consumer.seek_to_beginning()
        assert await consumer.getone() is not None
        await consumer.stop()

    asyncio.run(run())


def record_of(codec: str, index: int) -> dict[str, Any]:
    """What the clients are told to send; tests/protocol/test_golden.py expects the same."""
    return {
        "partition": 0,
        "key": None if index == 1 else f"key-{index}".encode(),
        "value": f"{codec}-{index} ".encode() * 20,
        "headers": [("codec", codec.encode())] if index == 2 else [],
        "timestamp": 1_700_000_000_000 + index,
    }


RECORDERS = {
    "confluent": record_confluent,
    "kafka-python": record_kafka_python,
    "aiokafka": record_aiokafka,
}


def main(names: list[str]) -> None:
    GOLDEN.mkdir(exist_ok=True)
    for name in names or list(RECORDERS):
        broker = ScriptedBroker()
        RECORDERS[name](broker)
        broker.listener.close()
        lines = []
        counts: dict[tuple[int, int], int] = {}
        for header, frame in broker.frames:
            kind = (header.api_key, header.api_version)
            counts[kind] = counts.get(kind, 0) + 1
            # Repeated polls add nothing; every Produce is another compression.
            if counts[kind] <= 2 or header.api_key == ApiKey.PRODUCE:
                api = ApiKey(header.api_key).name
                lines.append(
                    json.dumps({"api": api, "version": header.api_version, "frame": frame.hex()})
                )
        (GOLDEN / f"{name}.jsonl").write_text("\n".join(lines) + "\n")
        print(f"{name}: {len(lines)} of {len(broker.frames)} frames")


if __name__ == "__main__":
    main(sys.argv[1:])
