"""Columns of Arrow, made from what decoders give: one column of the schema from many values.

Each kind of column has `spark_type`, the type that Spark shows, and `build`, which makes an array
of exactly the Arrow type that Spark expects for it. Working on a column at a time keeps the cost
per value at that of a list entry. A value that does not fit its column (a decimal with too many
digits) makes `build` raise one of BUILD_ERRORS.
"""

import operator
from collections.abc import Callable, Sequence
from decimal import ROUND_HALF_UP, Context, Decimal, InvalidOperation
from itertools import chain
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.pandas.types import to_arrow_type
from pyspark.sql.types import (
    ArrayType,
    DataType,
    DateType,
    DecimalType,
    MapType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

BUILD_ERRORS = (pa.ArrowInvalid, ValueError, ArithmeticError)

# Wide enough that moving the point of any decimal of Spark never rounds by itself.
_CONTEXT = Context(prec=100, rounding=ROUND_HALF_UP)


class Column(Protocol):
    """Makes an array of one type from Python values; None is null."""

    @property
    def spark_type(self) -> DataType: ...

    def build(self, values: Sequence[Any]) -> pa.Array: ...


class PlainColumn:
    """Values that Arrow takes as they are."""

    def __init__(self, spark_type: DataType) -> None:
        self.spark_type = spark_type
        self._arrow_type = arrow_type(spark_type)

    def build(self, values: Sequence[Any]) -> pa.Array:
        return pa.array(values, self._arrow_type)


class MicrosColumn:
    """Moments, as whole numbers of a unit of `micros` microseconds since 1970."""

    def __init__(self, spark_type: TimestampType | TimestampNTZType, *, micros: int = 1) -> None:
        self.spark_type = spark_type
        self._arrow_type = arrow_type(spark_type)
        self._micros = micros

    def build(self, values: Sequence[Any]) -> pa.Array:
        numbers = pa.array(values, pa.int64())
        if self._micros != 1:
            numbers = pc.multiply_checked(numbers, self._micros)
        return numbers.view(self._arrow_type)


class DaysColumn:
    """Dates, as days since 1970."""

    def __init__(self) -> None:
        self.spark_type = DateType()

    def build(self, values: Sequence[Any]) -> pa.Array:
        return pa.array(values, pa.int32()).view(pa.date32())


class DecimalColumn:
    """Decimals; digits that the scale has no room for are rounded half up, as Spark does."""

    def __init__(self, spark_type: DecimalType) -> None:
        self.spark_type = spark_type
        self._arrow_type = arrow_type(spark_type)
        self._unit = Decimal(1).scaleb(-spark_type.scale)

    def build(self, values: Sequence[Any]) -> pa.Array:
        unit = self._unit
        try:
            fitted = [
                None if value is None else value.quantize(unit, context=_CONTEXT)
                for value in values
            ]
            return pa.array(fitted, self._arrow_type)
        except (InvalidOperation, pa.ArrowInvalid) as error:
            kind = self.spark_type.simpleString()
            raise ValueError(f"a number does not fit {kind}") from error


class StructColumn:
    """Values that `parts` takes apart into one value for each field."""

    def __init__(
        self,
        fields: Sequence[tuple[str, Column]],
        parts: Callable[[Any], tuple[Any, ...]],
    ) -> None:
        assert fields
        self._columns = [column for _, column in fields]
        self._parts = parts
        self._nothing = (None,) * len(fields)
        self.spark_type = StructType(
            [StructField(name, column.spark_type) for name, column in fields]
        )
        self._arrow_fields = list(arrow_type(self.spark_type))

    def build(self, values: Sequence[Any]) -> pa.Array:
        return pa.StructArray.from_arrays(
            self.build_fields(values), fields=self._arrow_fields, mask=_null_mask(values)
        )

    def build_fields(self, values: Sequence[Any]) -> list[pa.Array]:
        """The fields as arrays of their own, all null where a value is None."""
        parts, nothing = self._parts, self._nothing
        rows = [nothing if value is None else parts(value) for value in values]
        by_field = zip(*rows, strict=True) if rows else ((),) * len(self._columns)
        return [
            column.build(list(each)) for column, each in zip(self._columns, by_field, strict=True)
        ]


class ListColumn:
    """Values that are sequences."""

    def __init__(self, element: Column) -> None:
        self._element = element
        self.spark_type = ArrayType(element.spark_type)
        self._arrow_type = arrow_type(self.spark_type)

    def build(self, values: Sequence[Any]) -> pa.Array:
        elements = list(chain.from_iterable(value for value in values if value is not None))
        return pa.ListArray.from_arrays(
            _offsets(values),
            self._element.build(elements),
            type=self._arrow_type,
            mask=_null_mask(values),
        )


class MapColumn:
    """Values that are mappings."""

    def __init__(self, key: Column, value: Column) -> None:
        self._key = key
        self._value = value
        self.spark_type = MapType(key.spark_type, value.spark_type)
        self._arrow_type = arrow_type(self.spark_type)

    def build(self, values: Sequence[Any]) -> pa.Array:
        maps = [value for value in values if value is not None]
        return pa.MapArray.from_arrays(
            _offsets(values),
            self._key.build(list(chain.from_iterable(each.keys() for each in maps))),
            self._value.build(list(chain.from_iterable(each.values() for each in maps))),
            type=self._arrow_type,
            mask=_null_mask(values),
        )


def arrow_type(spark_type: DataType) -> pa.DataType:
    """The one Arrow type that Spark takes for a type."""
    return to_arrow_type(spark_type, timezone="UTC")


def entries(names: Sequence[str]) -> Callable[[Any], tuple[Any, ...]]:
    """Takes a dict apart by its keys, for StructColumn."""
    if len(names) == 1:
        name = names[0]
        return lambda value: (value[name],)
    return operator.itemgetter(*names)


def _null_mask(values: Sequence[Any]) -> pa.Array | None:
    if None not in values:
        return None
    return pa.array([value is None for value in values], pa.bool_())


def _offsets(values: Sequence[Any]) -> pa.Array:
    offsets = np.zeros(len(values) + 1, np.int64)
    np.cumsum([0 if value is None else len(value) for value in values], out=offsets[1:])
    return pa.array(offsets, pa.int64()).cast(pa.int32())
