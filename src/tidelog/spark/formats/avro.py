"""Avro records with a schema, which is that of the writer and of the reader."""

import io
from enum import Enum
from typing import Any

import fastavro
import pyarrow as pa
from fastavro.schema import fingerprint, to_parsing_canonical_form
from pyspark.sql.types import StructType

from tidelog.spark.formats.avro_schema import plain_schema, record_columns
from tidelog.spark.formats.decoding import Decoded, decode_rows
from tidelog.spark.formats.framing import confluent_start, single_object_start

# What fastavro's reader raises on bytes that are no record of the schema.
_ERRORS = (
    ValueError,
    EOFError,
    LookupError,
    TypeError,
    ArithmeticError,
    RecursionError,
    MemoryError,
)


class AvroFraming(Enum):
    """What stands before the record in a value."""

    NONE = "none"
    CONFLUENT = "confluent"
    SINGLE_OBJECT = "singleObject"


class AvroDecoder:
    """Decodes records of one schema, given as parsed JSON. Raises ValueError for one that Spark
    has no columns for."""

    def __init__(self, schema: Any, framing: AvroFraming = AvroFraming.NONE) -> None:
        self._source = schema
        self._framing = framing
        self._columns = record_columns(fastavro.parse_schema(schema, named_schemas={}))
        self._plain = fastavro.parse_schema(plain_schema(schema), named_schemas={})
        canonical = to_parsing_canonical_form(schema)
        self._fingerprint = bytes.fromhex(fingerprint(canonical, "CRC-64-AVRO"))
        assert isinstance(self._columns.spark_type, StructType)
        self.schema = self._columns.spark_type

    def __reduce__(self) -> tuple[Any, ...]:
        return AvroDecoder, (self._source, self._framing)

    def decode(self, values: pa.Array) -> Decoded:
        return decode_rows(values, self._parse, (ValueError,), self._columns)

    def _parse(self, data: bytes) -> Any:
        stream = io.BytesIO(data)
        stream.seek(self._start(data))
        try:
            record = fastavro.schemaless_reader(stream, self._plain, None, return_named_type=True)
        except _ERRORS as error:
            what = str(error) or type(error).__name__
            raise ValueError(f"no record of the schema: {what}") from error
        if left := len(data) - stream.tell():
            raise ValueError(f"{left} bytes are left over after the record")
        return record

    def _start(self, data: bytes) -> int:
        if self._framing is AvroFraming.CONFLUENT:
            return confluent_start(data)
        if self._framing is AvroFraming.SINGLE_OBJECT:
            return single_object_start(data, self._fingerprint)
        return 0
