"""Avro, in the single-object encoding of its specification.

Two marker bytes, the 8-byte fingerprint of the schema, then the data: a reader with another
schema sees at once that it cannot read the bytes, and no registry is needed.
"""

import io
from typing import Any

import fastavro
from fastavro.schema import fingerprint, to_parsing_canonical_form

from tidelog.client.errors import SerializationError

_MARKER = b"\xc3\x01"


class AvroSerializer:
    """Values of one schema. Schemas a reader should accept besides are given as `also_reads`."""

    def __init__(self, schema: Any, *, also_reads: tuple[Any, ...] = ()) -> None:
        self._schema = fastavro.parse_schema(schema)
        self._prefix = _MARKER + _fingerprint(schema)
        self._writers = {self._prefix: self._schema}
        for other in also_reads:
            self._writers[_MARKER + _fingerprint(other)] = fastavro.parse_schema(other)

    def serialize(self, value: Any) -> bytes | None:
        if value is None:
            return None
        out = io.BytesIO()
        out.write(self._prefix)
        try:
            fastavro.schemaless_writer(out, self._schema, value, strict=True)
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise SerializationError(f"the value does not fit the schema: {error}") from error
        return out.getvalue()

    def deserialize(self, data: bytes | None) -> Any:
        if data is None:
            return None
        writer = self._writers.get(data[:10])
        if writer is None:
            raise SerializationError(
                f"the bytes start with {data[:10].hex()}, which is no schema that this reader "
                f"knows: give it as also_reads"
            )
        try:
            return fastavro.schemaless_reader(io.BytesIO(data[10:]), writer, self._schema)
        except (ValueError, TypeError, KeyError, EOFError, IndexError) as error:
            raise SerializationError(f"the bytes do not parse: {error}") from error


def _fingerprint(schema: Any) -> bytes:
    canonical = to_parsing_canonical_form(schema)
    return bytes.fromhex(fingerprint(canonical, "CRC-64-AVRO"))
