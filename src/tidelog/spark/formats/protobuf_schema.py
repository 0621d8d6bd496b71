"""What a Protobuf message becomes in Spark.

    int32, sint32, sfixed32        int
    int64, sint64, sfixed64        long
    uint32, fixed32                long
    uint64, fixed64                decimal(20, 0)
    enum                           string; a number without a name is its digits
    repeated, map                  array, map
    message                        struct
    google.protobuf.Timestamp      timestamp
    google.protobuf.Duration       interval day to second
    google.protobuf.*Value         what they wrap: null where they are not set

A field that knows whether it was set (a message, `optional`, a member of a oneof, proto2) is null
when it was not; any other has its default then, as everywhere in Protobuf.

Spark writes no struct without fields, so a field whose type has none (google.protobuf.Empty) is
left out, and so are lists and maps of such and messages of nothing else.
"""

from collections.abc import Callable, Sequence
from keyword import iskeyword
from typing import Any

import pyarrow as pa
from google.protobuf.descriptor import Descriptor, EnumDescriptor, FieldDescriptor
from pyspark.sql.types import (
    BinaryType,
    BooleanType,
    DataType,
    DayTimeIntervalType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    StringType,
    TimestampType,
)

from tidelog.spark.formats.columns import (
    Column,
    ListColumn,
    MapColumn,
    MicrosColumn,
    PlainColumn,
    StructColumn,
)

Change = Callable[[Any], Any]

_SCALARS: dict[int, Callable[[], DataType]] = {
    FieldDescriptor.TYPE_DOUBLE: DoubleType,
    FieldDescriptor.TYPE_FLOAT: FloatType,
    FieldDescriptor.TYPE_INT64: LongType,
    FieldDescriptor.TYPE_SINT64: LongType,
    FieldDescriptor.TYPE_SFIXED64: LongType,
    FieldDescriptor.TYPE_INT32: IntegerType,
    FieldDescriptor.TYPE_SINT32: IntegerType,
    FieldDescriptor.TYPE_SFIXED32: IntegerType,
    FieldDescriptor.TYPE_UINT32: LongType,
    FieldDescriptor.TYPE_FIXED32: LongType,
    FieldDescriptor.TYPE_BOOL: BooleanType,
    FieldDescriptor.TYPE_STRING: StringType,
    FieldDescriptor.TYPE_BYTES: BinaryType,
}
_UNSIGNED_64 = (FieldDescriptor.TYPE_UINT64, FieldDescriptor.TYPE_FIXED64)
_WRAPPERS = frozenset(
    f"google.protobuf.{kind}Value"
    for kind in ("Double", "Float", "Int64", "UInt64", "Int32", "UInt32", "Bool", "String", "Bytes")
)


def message_columns(message: Descriptor) -> StructColumn:
    """The columns of a message. Raises ValueError for one that Spark has no columns for."""
    columns = _message(message, "", ())
    if columns is None:
        raise ValueError(f"{message.full_name} has no field that could be a column")
    return columns


def has_required_fields(message: Descriptor) -> bool:
    """Whether the message, or one inside of it, has fields that must be set."""
    waiting, seen = [message], set()
    while waiting:
        each = waiting.pop()
        if each.full_name in seen:
            continue
        seen.add(each.full_name)
        if any(_is_required(field) for field in each.fields):
            return True
        waiting += [field.message_type for field in each.fields if field.message_type is not None]
    return False


class _Mapped:
    """Values that are changed before they become another column's."""

    def __init__(self, column: Column, change: Change) -> None:
        self._column = column
        self._change = change

    @property
    def spark_type(self) -> DataType:
        return self._column.spark_type

    def build(self, values: Sequence[Any]) -> pa.Array:
        change = self._change
        return self._column.build([None if value is None else change(value) for value in values])


class _IntervalColumn:
    """Durations, as whole microseconds."""

    def __init__(self) -> None:
        self.spark_type = DayTimeIntervalType()

    def build(self, values: Sequence[Any]) -> pa.Array:
        return pa.array(values, pa.int64()).view(pa.duration("us"))


def _message(message: Descriptor, path: str, outer: tuple[str, ...]) -> StructColumn | None:
    """The column of a message, or None if nothing would be in it."""
    if message.full_name in outer:
        raise ValueError(f"{path} has the type {message.full_name}, which contains itself")
    inner = (*outer, message.full_name)
    kept = []
    for field in message.fields:
        column = _field(field, f"{path}.{field.name}" if path else field.name, inner)
        if column is not None:
            kept.append((field, column))
    if not kept:
        return None
    columns = [(field.name, column) for field, column in kept]
    return StructColumn(columns, _parts([field for field, _ in kept]))


def _parts(fields: Sequence[FieldDescriptor]) -> Callable[[Any], tuple[Any, ...]]:
    """A function that takes a message apart, in straight-line code: half the time of a loop."""
    parts = []
    for field in fields:
        # A name may be a word of Python's, so it cannot always stand behind a point.
        is_plain = field.name.isidentifier() and not iskeyword(field.name)
        name = repr(field.name)
        value = f"message.{field.name}" if is_plain else f"getattr(message, {name})"
        if field.has_presence and not _is_repeated(field):
            value = f"({value} if message.HasField({name}) else None)"
        parts.append(value)
    made: Callable[[Any], tuple[Any, ...]] = eval(f"lambda message: ({', '.join(parts)},)", {})
    return made


def _field(field: FieldDescriptor, path: str, outer: tuple[str, ...]) -> Column | None:
    if not _is_repeated(field):
        return _single(field, path, outer)
    entry = field.message_type
    if entry is not None and entry.GetOptions().map_entry:
        key = _single(entry.fields_by_name["key"], f"{path}[]", outer)
        value = _single(entry.fields_by_name["value"], f"{path}[]", outer)
        return None if key is None or value is None else MapColumn(key, value)
    element = _single(field, f"{path}[]", outer)
    return None if element is None else ListColumn(element)


def _is_repeated(field: FieldDescriptor) -> bool:
    # `label` is deprecated where `is_repeated` exists, from version 6.30 on.
    if hasattr(field, "is_repeated"):
        return bool(field.is_repeated)
    return bool(field.label == FieldDescriptor.LABEL_REPEATED)  # type: ignore[attr-defined]


def _is_required(field: FieldDescriptor) -> bool:
    if hasattr(field, "is_required"):
        return bool(field.is_required)
    return bool(field.label == FieldDescriptor.LABEL_REQUIRED)  # type: ignore[attr-defined]


def _single(field: FieldDescriptor, path: str, outer: tuple[str, ...]) -> Column | None:
    if field.type in _SCALARS:
        return PlainColumn(_SCALARS[field.type]())
    if field.type in _UNSIGNED_64:
        return PlainColumn(DecimalType(20, 0))
    if field.enum_type is not None:
        return _Mapped(PlainColumn(StringType()), _enum_name(field.enum_type))
    message = field.message_type
    assert message is not None
    name = message.full_name
    if name == "google.protobuf.Timestamp":
        return _Mapped(MicrosColumn(TimestampType()), _micros)
    if name == "google.protobuf.Duration":
        return _Mapped(_IntervalColumn(), _micros)
    if name in _WRAPPERS:
        wrapped = _single(message.fields_by_name["value"], path, outer)
        assert wrapped is not None
        return _Mapped(wrapped, lambda value: value.value)
    return _message(message, path, outer)


def _micros(value: Any) -> int:
    return int(value.seconds * 1_000_000 + value.nanos // 1000)


def _enum_name(enum: EnumDescriptor) -> Change:
    names = {value.number: value.name for value in enum.values}
    return lambda number: names.get(number) or str(number)
