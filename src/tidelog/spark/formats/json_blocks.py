"""Many JSON values at once, by Arrow's parser.

Arrow reads a text of objects and knows nothing of rows: two objects in one value, or one that ends
in the next value, would shift all rows after it. So each value stands inside of an object of ours,
one a line, `{"v":VALUE}`. A line then begins with `{` and ends with `}`; after a `}` no `{` may
follow inside of an object, so an object that does not end with its line is an error to the parser.
Each line therefore holds at least one object, and exactly one if there are as many objects as
lines. What a value could still smuggle in is a second field (`{},"w":1`): fields without a place
in the schema are errors here. A zero byte, which the parser takes for the end, and bytes that
are not UTF-8, which it does not check, are looked for first.

Where Arrow takes what row by row is refused (`NaN`) or seen differently (`-0` for a double), the
answer is left to the rows too. So `parse` either gives what the rows would give, or None.
"""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pa_json
from pyspark.sql.types import (
    ArrayType,
    BooleanType,
    ByteType,
    DataType,
    DateType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    ShortType,
    StringType,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from tidelog.spark.formats.columns import arrow_type
from tidelog.spark.formats.times import dates, timestamps

_READ_AS: dict[type[DataType], pa.DataType] = {
    BooleanType: pa.bool_(),
    ByteType: pa.int8(),
    ShortType: pa.int16(),
    IntegerType: pa.int32(),
    LongType: pa.int64(),
    FloatType: pa.float64(),
    DoubleType: pa.float64(),
    StringType: pa.string(),
    DateType: pa.string(),
    TimestampType: pa.string(),
    TimestampNTZType: pa.string(),
}

# Arrow counts the bytes of a block, and of a column, in 32 bits.
_TEXT_BYTES_MAX = 1 << 30


class BlockParser:
    """Parses whole columns of JSON, or says that it cannot. Made by `for_schema`."""

    def __init__(self, schema: StructType, read_as: pa.DataType) -> None:
        self._schema = schema
        self._options = pa_json.ParseOptions(
            explicit_schema=pa.schema([("v", read_as)]), unexpected_field_behavior="error"
        )

    @classmethod
    def for_schema(cls, schema: StructType) -> "BlockParser | None":
        """A parser, or None if the schema has types that only rows are read into."""
        read_as = _read_as(schema)
        return None if read_as is None else cls(schema, read_as)

    def parse(self, values: pa.Array) -> list[pa.Array] | None:
        """The columns of the values, or None where they must be read row by row."""
        try:
            values = values.cast(pa.string())
            lines = pc.binary_join_element_wise(
                '{"v":', values, "}\n", "", null_handling="replace", null_replacement="null"
            )
            _, ends, text = lines.buffers()
            text = text.slice(0, int(np.frombuffer(ends, np.int32)[len(values)]))
            if text.size > _TEXT_BYTES_MAX or np.frombuffer(text, np.uint8).min() == 0:
                return None
            table = pa_json.read_json(
                pa.BufferReader(text),
                # More than the text: it must be read as one block, wherever it has line ends.
                read_options=pa_json.ReadOptions(use_threads=False, block_size=text.size + 1),
                parse_options=self._options,
            )
            if table.num_rows != len(values):
                return None
            (rows,) = table.column("v").chunks
            return [
                _finish(column, field.dataType)
                for column, field in zip(rows.flatten(), self._schema, strict=True)
            ]
        except (pa.ArrowException, ValueError):
            return None


def _read_as(spark_type: DataType) -> pa.DataType | None:
    if isinstance(spark_type, ArrayType):
        element = _read_as(spark_type.elementType)
        return None if element is None else pa.list_(pa.field("element", element))
    if isinstance(spark_type, StructType):
        fields = [(field.name, _read_as(field.dataType)) for field in spark_type]
        return None if any(kind is None for _, kind in fields) else pa.struct(fields)
    return _READ_AS.get(type(spark_type))


def _finish(column: pa.Array, spark_type: DataType) -> pa.Array:
    """What was read, in Spark's type; raises ValueError for what the rows must decide."""
    match spark_type:
        case FloatType() | DoubleType():
            numbers = column.drop_null().to_numpy()
            if not np.isfinite(numbers).all() or np.signbit(numbers[numbers == 0]).any():
                raise ValueError("a number that the rows are asked about")
            return column.cast(arrow_type(spark_type))
        case DateType():
            return dates(column)
        case TimestampType() | TimestampNTZType():
            return timestamps(column, are_local=isinstance(spark_type, TimestampNTZType))
        case ArrayType():
            return pa.ListArray.from_arrays(
                column.offsets,
                _finish(column.values, spark_type.elementType),
                type=arrow_type(spark_type),
                mask=column.is_null() if column.null_count else None,
            )
        case StructType():
            return pa.StructArray.from_arrays(
                [_finish(column.field(at), field.dataType) for at, field in enumerate(spark_type)],
                fields=list(arrow_type(spark_type)),
                mask=column.is_null() if column.null_count else None,
            )
    return column
