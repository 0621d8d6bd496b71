"""What an Avro schema becomes in Spark.

Types map as Spark's own Avro reader maps them: enum to string, fixed to binary, a union with null
to the other type, int with long to long, float with double to double, any other union to a struct
with one field per type (`member0`, `member1`, ...), of which one is set. Logical types: date,
timestamp-millis and -micros (timestamp), local-timestamp-millis and -micros (timestamp_ntz),
decimal. Others are read as the type they stand on.

Spark writes no struct without fields, so a field whose type is a record without fields is left out,
and so are arrays, maps and unions of such and records of nothing else. In other unions the member
is left out; the rest keep their numbers.
"""

from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Any

import pyarrow as pa
from pyspark.sql.types import (
    BinaryType,
    BooleanType,
    DataType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    StringType,
    TimestampNTZType,
    TimestampType,
)

from tidelog.spark.formats.columns import (
    Column,
    DaysColumn,
    DecimalColumn,
    ListColumn,
    MapColumn,
    MicrosColumn,
    PlainColumn,
    StructColumn,
    entries,
)

Schema = Any

_PRIMITIVES: dict[str, Callable[[], DataType]] = {
    "boolean": BooleanType,
    "int": IntegerType,
    "long": LongType,
    "float": FloatType,
    "double": DoubleType,
    "bytes": BinaryType,
    "string": StringType,
}
_PYTHON_TYPES: dict[str, type] = {
    "boolean": bool,
    "int": int,
    "long": int,
    "float": float,
    "double": float,
    "bytes": bytes,
    "string": str,
    "array": list,
    "map": dict,
}
_NAMED = ("record", "error", "enum", "fixed")
_LOGICAL: dict[tuple[str, str], Callable[[], Column]] = {
    ("int", "date"): DaysColumn,
    ("long", "timestamp-millis"): lambda: MicrosColumn(TimestampType(), micros=1000),
    ("long", "timestamp-micros"): lambda: MicrosColumn(TimestampType()),
    ("long", "local-timestamp-millis"): lambda: MicrosColumn(TimestampNTZType(), micros=1000),
    ("long", "local-timestamp-micros"): lambda: MicrosColumn(TimestampNTZType()),
}
_PRECISION_MAX = 38


def record_columns(schema: Schema) -> StructColumn:
    """The columns of a parsed record schema, for values as fastavro reads them with
    `plain_schema` and `return_named_type`. Raises ValueError for what Spark has no type for."""
    if not isinstance(schema, dict) or schema["type"] not in ("record", "error"):
        raise ValueError("the schema is no record: only its fields can become columns")
    column = _Walk().column(schema, "")
    if column is None:
        raise ValueError(f"{schema['name']} has no field that could be a column")
    assert isinstance(column, StructColumn)
    return column


def plain_schema(schema: Schema) -> Schema:
    """The schema without its logical types but decimal: numbers are made into dates by columns."""
    if isinstance(schema, list):
        return [plain_schema(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    kept = {
        name: plain_schema(part) if name in ("type", "items", "values", "fields") else part
        for name, part in schema.items()
        # fastavro marks what it has parsed, and takes such a schema as it is.
        if not name.startswith("__")
    }
    if kept.get("logicalType") != "decimal":
        kept.pop("logicalType", None)
    return kept


class _NamedColumn:
    """Values of a named type in a union: pairs of its name and the value."""

    def __init__(self, column: Column) -> None:
        self._column = column

    @property
    def spark_type(self) -> DataType:
        return self._column.spark_type

    def build(self, values: Sequence[Any]) -> pa.Array:
        return self._column.build([None if value is None else value[1] for value in values])


class _Walk:
    """Goes down a schema; remembers the types that have a name."""

    def __init__(self) -> None:
        self._named: dict[str, dict[str, Any]] = {}
        self._open: set[str] = set()

    def column(self, schema: Schema, path: str) -> Column | None:
        """The column of a type, or None if nothing would be in it."""
        if isinstance(schema, list):
            return self._union(schema, path)
        schema = self._resolve(schema)
        kind = schema["type"]
        if isinstance(kind, dict | list):
            return self.column(kind, path)
        logical = schema.get("logicalType")
        if logical == "decimal" and kind in ("bytes", "fixed"):
            return _decimal(schema, path)
        if (kind, logical) in _LOGICAL:
            return _LOGICAL[kind, logical]()
        if kind in _PRIMITIVES:
            return PlainColumn(_PRIMITIVES[kind]())
        match kind:
            case "enum":
                return PlainColumn(StringType())
            case "fixed":
                return PlainColumn(BinaryType())
            case "array":
                items = self.column(schema["items"], f"{path}[]")
                return None if items is None else ListColumn(items)
            case "map":
                values = self.column(schema["values"], f"{path}[]")
                return None if values is None else MapColumn(PlainColumn(StringType()), values)
            case "record" | "error":
                return self._record(schema, path)
        raise ValueError(f"{path or 'the schema'} has the type {kind!r}, which Spark has not")

    def _resolve(self, schema: Schema) -> dict[str, Any]:
        """The schema as a dict; a name stands for what was defined under it."""
        if isinstance(schema, str):
            return self._named.get(schema, {"type": schema})
        assert isinstance(schema, dict)
        kind = schema["type"]
        if isinstance(kind, str) and kind in self._named:
            return self._named[kind]
        if kind in _NAMED:
            self._named[schema["name"]] = schema
        return schema

    def _record(self, schema: Schema, path: str) -> Column | None:
        name = schema["name"]
        if name in self._open:
            raise ValueError(f"{path} has the type {name}, which contains itself")
        self._open.add(name)
        fields = []
        for field in schema["fields"]:
            column = self.column(field["type"], _join(path, field["name"]))
            if column is not None:
                fields.append((field["name"], column))
        self._open.remove(name)
        return StructColumn(fields, entries([name for name, _ in fields])) if fields else None

    def _union(self, schemas: list[Schema], path: str) -> Column | None:
        branches = [schema for schema in schemas if self._kind(schema) != "null"]
        if not branches:
            raise ValueError(f"{path} can only be null")
        kinds = {self._kind(branch) for branch in branches}
        if len(branches) > 1 and kinds in ({"int", "long"}, {"float", "double"}):
            # Arrow makes the wider numbers of both.
            return PlainColumn(LongType() if "int" in kinds else DoubleType())
        columns: list[Column | None] = []
        for at, branch in enumerate(branches):
            inner_path = path if len(branches) == 1 else f"{path}.member{at}"
            column = self.column(branch, inner_path)
            if column is not None and self._kind(branch) in _NAMED:
                column = _NamedColumn(column)
            columns.append(column)
        if len(columns) == 1:
            return columns[0]
        return self._members(branches, columns, path)

    def _members(
        self, branches: list[Schema], columns: list[Column | None], path: str
    ) -> Column | None:
        numbers: dict[Any, int] = {}
        for number, branch in enumerate(branches):
            key = self._mark(branch)
            if key in numbers:
                both = f"{self._kind(branches[numbers[key]])} and {self._kind(branch)}"
                raise ValueError(f"{path} is a union with {both}, which cannot be told apart")
            numbers[key] = number
        kept = [(number, column) for number, column in enumerate(columns) if column is not None]
        if not kept:
            return None
        order = {number: at for at, (number, _) in enumerate(kept)}
        places = {key: order.get(number) for key, number in numbers.items()}
        count = len(kept)

        def members(value: Any) -> tuple[Any, ...]:
            # A value of a named type comes with its name, any other is told by its Python type.
            place = places[value[0] if type(value) is tuple else type(value)]
            parts = [None] * count
            if place is not None:
                parts[place] = value
            return tuple(parts)

        return StructColumn([(f"member{number}", column) for number, column in kept], members)

    def _mark(self, branch: Schema) -> Any:
        resolved = self._resolve(branch)
        if resolved["type"] in _NAMED:
            return resolved["name"]
        if resolved.get("logicalType") == "decimal":
            return Decimal
        return _PYTHON_TYPES[resolved["type"]]

    def _kind(self, schema: Schema) -> str:
        kind = self._resolve(schema)["type"]
        assert isinstance(kind, str)
        return kind


def _decimal(schema: Schema, path: str) -> Column:
    precision, scale = schema["precision"], schema.get("scale", 0)
    if not 0 <= scale <= precision <= _PRECISION_MAX:
        raise ValueError(
            f"{path} is a decimal({precision}, {scale}), Spark's have up to {_PRECISION_MAX} digits"
        )
    return DecimalColumn(DecimalType(precision, scale))


def _join(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name
