"""Each format through Spark, from a real broker."""

import io
import json
from collections.abc import Sequence
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import fastavro
import pytest
from confluent_kafka import Producer
from pyspark.sql import DataFrame, SparkSession

from tests.spark.formats.proto_files import descriptor_set, message_class
from tidelog.testing import Broker


def _produce(broker: Broker, topic: str, values: Sequence[bytes | None]) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
    for at, value in enumerate(values):
        producer.produce(topic, value, key=b"k%d" % at, partition=0, headers=[("h", b"1")])
    assert producer.flush(30) == 0


def _read(spark: SparkSession, broker: Broker, topic: str, options: dict[str, str]) -> DataFrame:
    return (
        spark.read.format("tidelog")
        .option("kafka.bootstrap.servers", broker.bootstrap_servers)
        .option("subscribe", topic)
        .options(**options)
        .load()
    )


def _rows(frame: DataFrame, *columns: str) -> list[dict[str, Any]]:
    return [
        row.asDict(recursive=True) for row in frame.orderBy("offset").select(*columns).collect()
    ]


def test_json(spark: SparkSession, broker: Broker, topic: str) -> None:
    value = {
        "id": 7,
        "at": "2026-01-31T12:30:15.5Z",
        "tags": ["a", None],
        "inner": {"x": 1},
        "counts": {"a": 1},
        "price": 1.255,
        "unknown": 1,
    }
    _produce(broker, topic, [json.dumps(value).encode(), b"broken", None])
    ddl = (
        "id long, at timestamp, tags array<string>, inner struct<x: int, y: string>,"
        " counts map<string, int>, price decimal(6, 2)"
    )
    frame = _read(spark, broker, topic, {"valueFormat": "json", "valueSchema": ddl})
    columns = ["id", "unix_micros(at) AS at", "tags", "inner", "counts", "price", "_corrupt"]
    rows = [
        row.asDict(recursive=True)
        for row in frame.orderBy("offset").selectExpr("offset", *columns).collect()
    ]
    assert rows[0] == {
        "offset": 0,
        "id": 7,
        "at": 1_769_862_615_500_000,
        "tags": ["a", None],
        "inner": {"x": 1, "y": None},
        "counts": {"a": 1},
        "price": Decimal("1.26"),
        "_corrupt": None,
    }
    nothing = dict.fromkeys(["id", "at", "tags", "inner", "counts", "price"])
    assert rows[1] == {"offset": 1, **nothing, "_corrupt": b"broken"}
    assert rows[2] == {"offset": 2, **nothing, "_corrupt": None}


def test_text(spark: SparkSession, broker: Broker, topic: str) -> None:
    _produce(broker, topic, ["ü".encode(), b"\xff"])
    frame = _read(spark, broker, topic, {"valueFormat": "string", "includeHeaders": "true"})
    assert frame.columns[:2] == ["key", "value"]
    assert _rows(frame, "value", "_corrupt") == [
        {"value": "ü", "_corrupt": None},
        {"value": None, "_corrupt": b"\xff"},
    ]


def test_avro(spark: SparkSession, broker: Broker, topic: str, tmp_path: Path) -> None:
    schema = {
        "type": "record",
        "name": "R",
        "fields": [
            {"name": "id", "type": "int"},
            {"name": "state", "type": {"type": "enum", "name": "S", "symbols": ["A", "B"]}},
            {
                "name": "at",
                "type": ["null", {"type": "long", "logicalType": "local-timestamp-millis"}],
            },
            {"name": "any", "type": ["string", "boolean"]},
        ],
    }
    path = tmp_path / "r.avsc"
    path.write_text(json.dumps(schema))
    out = io.BytesIO()
    out.write(b"\0\0\0\0\x07")
    record = {"id": 1, "state": "B", "at": datetime(2026, 1, 31), "any": True}
    fastavro.schemaless_writer(out, fastavro.parse_schema(schema), record)
    _produce(broker, topic, [out.getvalue(), b"broken"])
    options = {"valueFormat": "avro", "valueSchema": str(path), "avroFraming": "confluent"}
    frame = _read(spark, broker, topic, options)
    assert _rows(frame, "id", "state", "at", "any", "_corrupt") == [
        {**record, "any": {"member0": None, "member1": True}, "_corrupt": None},
        {"id": None, "state": None, "at": None, "any": None, "_corrupt": b"broken"},
    ]


def test_protobuf_with_dead_letters(
    spark: SparkSession, broker: Broker, topic: str, tmp_path: Path
) -> None:
    path = tmp_path / "shop.desc"
    path.write_bytes(descriptor_set())
    item = {"sku": "a", "count": 2}
    order = message_class("shop.Order")(
        id=5, state=5, items=[item], counts={"x": 1}, took={"seconds": 1}
    )
    _produce(broker, topic, [order.SerializeToString(), b"\xff", b""])
    dead = f"{topic}-dead"
    options = {
        "valueFormat": "protobuf",
        "protobufDescriptor": str(path),
        "protobufMessage": "shop.Order",
        "corruptRows": "deadLetter",
        "deadLetterTopic": dead,
    }
    frame = _read(spark, broker, topic, options)
    assert "headers" not in frame.columns
    assert _rows(frame, "offset", "id", "state", "items", "counts") == [
        {
            "offset": 0,
            "id": 5,
            "state": "PAID",
            "items": [{"sku": "a", "count": 2}],
            "counts": {"x": 1},
        },
        {"offset": 2, "id": 0, "state": "NEW", "items": [], "counts": {}},
    ]
    letters = _read(spark, broker, dead, {"includeHeaders": "true"}).collect()
    assert {(row.key, row.value) for row in letters} == {(f"{topic}-0-1".encode(), b"\xff")}
    headers = {each.key: each.value for each in letters[0].headers}
    assert headers["h"] == b"1"
    assert headers["tidelog.origin.key"] == b"k1"


def test_a_corrupt_row_may_fail_the_query(spark: SparkSession, broker: Broker, topic: str) -> None:
    _produce(broker, topic, [b"broken"])
    options = {"valueFormat": "json", "valueSchema": "id int", "corruptRows": "fail"}
    with pytest.raises(Exception, match=f"offset 0 of {topic}-0 does not parse"):
        _read(spark, broker, topic, options).collect()
