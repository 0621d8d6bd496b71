"""The client: one connection's settings, and everything an application does with them."""

import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from typing import Any

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient, NewTopic

from tidelog.client.consuming import Batch, Subscription
from tidelog.client.errors import ClientError, ConnectError
from tidelog.client.message import Headers
from tidelog.client.partitioners import KeyHash, Partitioner, TopicLayout
from tidelog.client.publishing import Delivery, Publisher
from tidelog.client.serializers import BytesSerializer, Serializer


def connect(
    bootstrap_servers: str = "localhost:9092",
    *,
    client_id: str = "tidelog",
    partitioner: Partitioner | None = None,
    key_serializer: Serializer | None = None,
    value_serializer: Serializer | None = None,
    timeout_s: float = 10.0,
    settings: Mapping[str, Any] | None = None,
) -> "Client":
    """A client whose broker has answered once; raises ConnectError when none does in time.

    `settings` are librdkafka's own, for producers and consumers alike.
    """
    client = Client(
        bootstrap_servers,
        client_id=client_id,
        partitioner=partitioner or KeyHash(),
        key_serializer=key_serializer or BytesSerializer(),
        value_serializer=value_serializer or BytesSerializer(),
        timeout_s=timeout_s,
        settings=settings or {},
    )
    client.check()
    return client


class Client:
    """Publishes, consumes and manages topics. Safe to share between threads."""

    def __init__(
        self,
        bootstrap_servers: str,
        *,
        client_id: str,
        partitioner: Partitioner,
        key_serializer: Serializer,
        value_serializer: Serializer,
        timeout_s: float,
        settings: Mapping[str, Any],
    ) -> None:
        self.bootstrap_servers = bootstrap_servers
        self.key_serializer = key_serializer
        self.value_serializer = value_serializer
        self.timeout_s = timeout_s
        self.partitioner = partitioner
        self.settings = dict(settings)
        self._lock = threading.Lock()
        self._last_error: KafkaError | None = None
        self._settings: dict[str, Any] = {
            "bootstrap.servers": bootstrap_servers,
            "client.id": client_id,
            # The client reports errors itself; librdkafka's lines on stderr would say them twice.
            "log_level": 0,
            "error_cb": self._note_error,
            **settings,
        }
        self._admin = AdminClient(self._settings)
        self._publisher: Publisher | None = None
        self._subscriptions: list[Subscription] = []

    def __enter__(self) -> "Client":
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def check(self) -> None:
        """Ask the broker for its metadata; raise ConnectError when it does not answer."""
        try:
            self._admin.list_topics(timeout=self.timeout_s)
        except KafkaException as error:
            raise self._unreachable(error) from error

    def create_topic(
        self,
        topic: str,
        partitions: int = -1,
        *,
        replication_factor: int = -1,
        config: Mapping[str, str] | None = None,
        exist_ok: bool = True,
    ) -> bool:
        """Create a topic; True if it is new. -1 takes the broker's defaults."""
        new = NewTopic(
            topic,
            num_partitions=partitions,
            replication_factor=replication_factor,
            config=dict(config or {}),
        )
        try:
            futures = self._admin.create_topics(
                [new], operation_timeout=self.timeout_s, request_timeout=self.timeout_s
            )
            futures[topic].result(self.timeout_s)
        except KafkaException as error:
            code = error.args[0]
            if code.code() == KafkaError.TOPIC_ALREADY_EXISTS and exist_ok:
                return False
            raise ClientError(f"cannot create the topic {topic}: {code.str()}") from error
        return True

    def publish(
        self,
        topic: str,
        key: Any = None,
        value: Any = None,
        headers: Headers | Mapping[str, bytes | str | None] | None = None,
        *,
        partition: int | None = None,
        timestamp_ms: int | None = None,
    ) -> "Future[Delivery]":
        """Publish one record. Records are sent in batches; `flush` or the future tells the end."""
        return self._get_publisher().publish(
            topic, key, value, headers, partition=partition, timestamp_ms=timestamp_ms
        )

    def flush(self, timeout_s: float | None = None) -> None:
        """Wait until every published record is acknowledged; raise PublishError if one was not."""
        if self._publisher is not None:
            self._publisher.flush(timeout_s)

    def consume(
        self,
        topic: str | Sequence[str],
        group: str,
        max_batch: int = 500,
        *,
        start: str = "earliest",
        idle_timeout_s: float | None = None,
        settings: Mapping[str, Any] | None = None,
    ) -> Subscription:
        """Join a group and read. `start` says where a group without commits begins.

        With `idle_timeout_s` the iteration ends when nothing came for that long.
        """
        subscription = Subscription(
            {
                **self._settings,
                "group.id": group,
                "enable.auto.commit": False,
                "auto.offset.reset": start,
                "partition.assignment.strategy": "cooperative-sticky",
                **(settings or {}),
            },
            [topic] if isinstance(topic, str) else topic,
            max_batch=max_batch,
            idle_timeout_s=idle_timeout_s,
            key_serializer=self.key_serializer,
            value_serializer=self.value_serializer,
        )
        self._subscriptions.append(subscription)
        return subscription

    def commit(self, batch: Batch) -> None:
        """Record in its group that a batch is done."""
        batch.commit()

    def layout_of(self, topic: str) -> TopicLayout:
        """The partitions of a topic with the racks of their leaders."""
        try:
            metadata = self._admin.list_topics(topic, timeout=self.timeout_s).topics[topic]
            cluster = self._admin.describe_cluster(request_timeout=self.timeout_s)
            racks = {node.id: node.rack for node in cluster.result(self.timeout_s).nodes}
        except KafkaException as error:
            raise self._unreachable(error) from error
        if metadata.error is not None:
            raise ClientError(f"the topic {topic} cannot be read: {metadata.error.str()}")
        partitions = (metadata.partitions[number] for number in sorted(metadata.partitions))
        return TopicLayout(topic, tuple(racks.get(each.leader) for each in partitions))

    def close(self) -> None:
        """Leave all groups and wait for what was published."""
        for subscription in self._subscriptions:
            subscription.close()
        self._subscriptions.clear()
        if self._publisher is not None:
            self._publisher.close()
            self._publisher = None

    def _get_publisher(self) -> Publisher:
        with self._lock:
            if self._publisher is None:
                self._publisher = Publisher(
                    {"enable.idempotence": True, "linger.ms": 5, **self._settings},
                    partitioner=self.partitioner,
                    layout_of=self.layout_of,
                    key_serializer=self.key_serializer,
                    value_serializer=self.value_serializer,
                    timeout_s=self.timeout_s,
                )
            return self._publisher

    def _note_error(self, error: KafkaError) -> None:
        self._last_error = error

    def _unreachable(self, error: KafkaException) -> ConnectError:
        reason = self._last_error.str() if self._last_error is not None else error.args[0].str()
        return ConnectError(
            f"no broker answered at {self.bootstrap_servers} within {self.timeout_s:g} s: {reason}"
        )
