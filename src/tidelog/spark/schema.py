"""The columns that a topic has in Spark: those of Spark's own Kafka source.

key            binary                  null for a record without a key
value          binary                  null for a tombstone
topic          string
partition      int
offset         long
timestamp      timestamp               null if its microseconds do not fit 64 bits
timestampType  int                     0: set by the producer, 1: set by the broker
headers        array<struct<key: string, value: binary>>    null for a record without headers
"""

import pyarrow as pa
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

HEADERS_TYPE = ArrayType(
    StructType([StructField("key", StringType()), StructField("value", BinaryType())])
)

SOURCE_SCHEMA = StructType(
    [
        StructField("key", BinaryType()),
        StructField("value", BinaryType()),
        StructField("topic", StringType()),
        StructField("partition", IntegerType()),
        StructField("offset", LongType()),
        StructField("timestamp", TimestampType()),
        StructField("timestampType", IntegerType()),
    ]
)

_SCHEMA_WITH_HEADERS = StructType([*SOURCE_SCHEMA.fields, StructField("headers", HEADERS_TYPE)])

ARROW_HEADER = pa.struct([("key", pa.string()), ("value", pa.binary())])
ARROW_HEADERS = pa.list_(pa.field("element", ARROW_HEADER))

_ARROW_SCHEMA = pa.schema(
    [
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", pa.timestamp("us", tz="UTC")),
        ("timestampType", pa.int32()),
    ]
)
_ARROW_SCHEMA_WITH_HEADERS = _ARROW_SCHEMA.append(pa.field("headers", ARROW_HEADERS))


def spark_schema(include_headers: bool) -> StructType:
    """The columns of the source; `headers` comes last, if asked for."""
    return _SCHEMA_WITH_HEADERS if include_headers else SOURCE_SCHEMA


def arrow_schema(include_headers: bool) -> pa.Schema:
    """The same columns as Spark wants them in Arrow: exactly these types, all nullable."""
    return _ARROW_SCHEMA_WITH_HEADERS if include_headers else _ARROW_SCHEMA
