"""JSON objects with a schema.

A field that is missing or null is null, a field that the schema does not name is ignored, a value
of another type makes the row corrupt: nothing is converted but

    float, double        from any number
    decimal              from a number, or a text that would be one without its quotes; rounded to
                         the scale
    date, timestamp      from texts in ISO 8601; without a zone they are UTC
    timestamp_ntz        from texts in ISO 8601 without a zone
    binary               from base64
    map                  from an object; its keys are strings

Values that fit are read by Arrow's parser, many at a time (`json_blocks`); a piece with a row that
it does not take is read again row by row. Both give the same answers.
"""

import re
from decimal import Decimal
from typing import Annotated, Any

import msgspec
import pyarrow as pa
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    ByteType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    StringType,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from tidelog.spark.formats.columns import (
    Column,
    DecimalColumn,
    ListColumn,
    MapColumn,
    PlainColumn,
    StructColumn,
)
from tidelog.spark.formats.decoding import Decoded, concatenate, decode_rows
from tidelog.spark.formats.json_blocks import BlockParser
from tidelog.spark.formats.times import DateTextColumn, TimestampTextColumn

ROWS_PER_BLOCK = 2048

_INTEGER_BITS = {ByteType: 8, ShortType: 16, IntegerType: 32, LongType: 64}
_PLAIN = {
    BooleanType: bool,
    DoubleType: float,
    FloatType: float,
    StringType: str,
    BinaryType: bytes,
}
# ArithmeticError: a decimal with an exponent that has too many digits.
_ERRORS = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, ArithmeticError)

_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?")


class JsonDecoder:
    """Decodes JSON objects into the columns of a schema. Raises ValueError for a type it cannot."""

    def __init__(self, schema: StructType, *, by_blocks: bool = True) -> None:
        kind, columns = _object(schema, "")
        assert isinstance(columns.spark_type, StructType)
        self.schema = columns.spark_type
        self._by_blocks = by_blocks
        self._columns = columns
        # `null` as the whole value is a row of nulls, as it is for Spark's from_json.
        self._parse = msgspec.json.Decoder(kind | None, dec_hook=_number, float_hook=Decimal).decode
        self._blocks = BlockParser.for_schema(self.schema) if by_blocks else None

    def __reduce__(self) -> tuple[Any, ...]:
        return _remake, (self.schema, self._by_blocks)

    def decode(self, values: pa.Array) -> Decoded:
        if self._blocks is None or not len(values):
            return self._decode_rows(values)
        parts = []
        corrupt = {}
        for start in range(0, len(values), ROWS_PER_BLOCK):
            piece = values.slice(start, ROWS_PER_BLOCK)
            columns = self._blocks.parse(piece)
            if columns is None:
                decoded = self._decode_rows(piece)
                columns = decoded.columns
                corrupt.update({start + at: why for at, why in decoded.corrupt.items()})
            parts.append(columns)
        return Decoded(concatenate(parts), corrupt)

    def _decode_rows(self, values: pa.Array) -> Decoded:
        return decode_rows(values, self._parse, _ERRORS, self._columns)


class _Number(Decimal):
    """A decimal by `_number`: msgspec's own take all texts that Python's do, such as `1_000`."""


def _number(_: type[_Number], value: Any) -> _Number:
    """What stands in the JSON; numbers with a point come as decimals, through `float_hook`."""
    kind = type(value)
    if kind is Decimal or kind is int or (kind is str and _NUMBER.fullmatch(value)):
        return _Number(value)
    raise ValueError(f"{value!r} is no number as JSON has them")


def _remake(schema: StructType, by_blocks: bool) -> JsonDecoder:
    return JsonDecoder(schema, by_blocks=by_blocks)


def _object(spark_type: StructType, path: str) -> tuple[Any, StructColumn]:
    """The type that msgspec checks objects against, and the column they become."""
    if not spark_type.fields:
        raise ValueError(f"{path or 'the schema'} has no fields")
    shapes = [
        (field.name, *_shape(field.dataType, f"{path}.{field.name}" if path else field.name))
        for field in spark_type
    ]
    # Names of fields may be anything, those of Python attributes may not.
    kind = msgspec.defstruct(
        "Row",
        [(f"f{at}", kind | None, None) for at, (_, kind, _) in enumerate(shapes)],
        rename={f"f{at}": name for at, (name, _, _) in enumerate(shapes)},
        gc=False,
    )
    return kind, StructColumn(
        [(name, column) for name, _, column in shapes], msgspec.structs.astuple
    )


def _generic(kind: Any, *parameters: Any) -> Any:
    return kind[parameters]


def _shape(spark_type: DataType, path: str) -> tuple[Any, Column]:
    match spark_type:
        case ByteType() | ShortType() | IntegerType() | LongType():
            limit = 1 << (_INTEGER_BITS[type(spark_type)] - 1)
            meta = msgspec.Meta(ge=-limit, le=limit - 1)
            return Annotated[int, meta], PlainColumn(spark_type)
        case BooleanType() | DoubleType() | FloatType() | StringType() | BinaryType():
            return _PLAIN[type(spark_type)], PlainColumn(spark_type)
        case DecimalType():
            return _Number, DecimalColumn(spark_type)
        case DateType():
            return str, DateTextColumn()
        case TimestampType() | TimestampNTZType():
            return str, TimestampTextColumn(spark_type)
        case ArrayType():
            item, element = _shape(spark_type.elementType, f"{path}[]")
            return _generic(list, item | None), ListColumn(element)
        case MapType():
            if not isinstance(spark_type.keyType, StringType):
                raise ValueError(f"{path} is a map with keys that JSON has not: they are strings")
            item, value = _shape(spark_type.valueType, f"{path}[]")
            return _generic(dict, str, item | None), MapColumn(PlainColumn(StringType()), value)
        case StructType():
            return _object(spark_type, path)
    raise ValueError(f"{path} has the type {spark_type.simpleString()}, which JSON has not")
