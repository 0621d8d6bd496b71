"""A streaming query driven by hand: what Spark does with a writer, one step at a time."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import WriterCommitMessage
from pyspark.sql.types import StringType, StructField, StructType

from tidelog.client.cluster import ClusterClient
from tidelog.spark.sink import SinkOptions, TidelogStreamWriter, parse_sink_options, part
from tidelog.spark.sink.lent_client import lent_client
from tidelog.spark.sink.markers import DecidedPart, Decision, Markers
from tidelog.spark.sink.messages import Prepared
from tidelog.spark.sink.names import WriterKind, WriterNames
from tidelog.spark.sink.task import TaskIdentity

# Of every topic that says nothing else.
PARTITIONS = 3
SCHEMA = StructType([StructField("key", StringType()), StructField("value", StringType())])

Messages = list[WriterCommitMessage]
Parts = Mapping[int, Iterable[str]]


def rows(values: Iterable[str]) -> pa.RecordBatch:
    texts = pa.array(list(values), pa.string())
    return pa.record_batch({"key": texts, "value": texts})


def sink_options(bootstrap: str, topic: str, **options: str) -> SinkOptions:
    given = {"kafka.bootstrap.servers": bootstrap, "topic": topic}
    given |= {name.replace("_", "."): value for name, value in options.items()}
    return parse_sink_options(given, SCHEMA, streaming=True)


@dataclass
class Query:
    """One query, whose checkpoint survives what its processes do not."""

    options: SinkOptions
    query_id: str = field(default_factory=lambda: uuid.uuid4().hex)

    @property
    def names(self) -> WriterNames:
        return WriterNames(self.options.transactional_id_prefix, WriterKind.QUERY, self.query_id)

    def transactional_id(self, partition_id: int) -> str:
        return self.names.task(partition_id)

    def writer(self) -> TidelogStreamWriter:
        return TidelogStreamWriter(self.options, SCHEMA)

    def write(self, batch_id: int, parts: Parts) -> Messages:
        """All tasks of a batch, up to what they tell the driver."""
        return [
            self.write_part(batch_id, partition_id, [rows(values)])
            for partition_id, values in parts.items()
        ]

    def write_part(
        self, batch_id: int, partition_id: int, batches: Iterable[pa.RecordBatch]
    ) -> WriterCommitMessage:
        task = TaskIdentity(self.query_id, batch_id, partition_id)
        return self.writer().write_part(task, iter(batches))

    def commit(self, messages: Messages, batch_id: int) -> None:
        self.writer().commit(messages, batch_id)

    def abort(self, messages: Sequence[WriterCommitMessage | None], batch_id: int) -> None:
        self.writer().abort(messages, batch_id)

    def run(self, batch_id: int, parts: Parts) -> Messages:
        messages = self.write(batch_id, parts)
        self.commit(messages, batch_id)
        return messages

    def start_again(self) -> None:
        """All processes of the query are new: they know nothing."""
        part._prepared.clear()

    def decide(self, messages: Messages, batch_id: int) -> None:
        """The commit of a driver that dies when it has recorded its decision."""
        parts = tuple(
            DecidedPart(each.transaction, each.shape)
            for each in messages
            if isinstance(each, Prepared)
        )
        with self.client() as client:
            Markers(client).record(self.names, Decision(batch_id, parts))

    @contextmanager
    def client(self) -> Iterator[ClusterClient]:
        with lent_client(self.options) as client:
            yield client


def kinds(messages: Iterable[Any]) -> list[str]:
    return [type(each).__name__ for each in messages]
