"""Random messages of any declared class, drawn from its schema."""

from typing import Any

from hypothesis import strategies as st

from tidelog.protocol.fields import (
    BOOL,
    BYTES,
    FLOAT64,
    INT8,
    INT16,
    INT32,
    INT64,
    RECORDS,
    STRING,
    UINT16,
    UINT32,
    UUID,
    Array,
    Field,
    FieldType,
    Primitive,
)
from tidelog.protocol.schema import OWN_TAGS_FROM, Message, Struct

_EXTREMES: dict[Primitive, tuple[int, int]] = {
    INT8: (-(2**7), 2**7 - 1),
    INT16: (-(2**15), 2**15 - 1),
    UINT16: (0, 2**16 - 1),
    INT32: (-(2**31), 2**31 - 1),
    UINT32: (0, 2**32 - 1),
    INT64: (-(2**63), 2**63 - 1),
}
# Short, longer than a one-byte length, and beyond ASCII.
_TEXTS = st.sampled_from(["", "a", "orders", "ünïcode-名", "x" * 126, "y" * 127, "z" * 300])
_BYTES = st.one_of(st.binary(max_size=8), st.sampled_from([b"\x00" * 130, b"q" * 20000]))

_PRIMITIVES: dict[Primitive, st.SearchStrategy[Any]] = {
    BOOL: st.booleans(),
    FLOAT64: st.floats(allow_nan=False),
    UUID: st.binary(min_size=16, max_size=16),
    STRING: _TEXTS,
    BYTES: _BYTES,
    RECORDS: _BYTES,
}

# Values that every other codec takes too: some of them turn numbers into times and error enums.
TAME: dict[Primitive, st.SearchStrategy[Any]] = {
    each: st.integers(0, 60) for each in (INT8, INT16, UINT16, INT32, UINT32, INT64)
}
_WILD: dict[Primitive, st.SearchStrategy[Any]] = {
    each: st.one_of(
        st.sampled_from([low, -1, 0, 1, high] if low else [low, 1, high]), st.integers(low, high)
    )
    for each, (low, high) in _EXTREMES.items()
}


def values(
    kind: FieldType, integers: dict[Primitive, st.SearchStrategy[Any]]
) -> st.SearchStrategy[Any]:
    if isinstance(kind, Primitive):
        return integers[kind] if kind in integers else _PRIMITIVES[kind]
    if isinstance(kind, Array):
        return st.lists(values(kind.element, integers), max_size=2)
    return structs(kind, integers)


def structs(
    cls: type[Any], integers: dict[Primitive, st.SearchStrategy[Any]] | None = None
) -> st.SearchStrategy[Any]:
    """Instances of a struct or message; fields that may be null sometimes are."""
    chosen = _WILD if integers is None else integers

    def one(each: Field) -> st.SearchStrategy[Any]:
        if chosen is TAME and each.tag is not None and each.tag >= OWN_TAGS_FROM:
            return st.builds(each.make_default)  # nobody else knows it
        strategy = values(each.type, chosen)
        if each.nullable.high >= 0:
            strategy = st.one_of(st.none(), strategy)
        # Tagged fields are absent on the wire when they have their default.
        return (
            st.one_of(strategy, st.builds(each.make_default)) if each.tag is not None else strategy
        )

    return st.builds(cls, **{each.name: one(each) for each in cls.FIELDS})


def project(message: Struct, version: int) -> Any:
    """What is left of a message after a trip through `version`: absent fields have defaults.

    A null where this version knows none becomes the zero value, so that it can be encoded.
    """
    return type(message)(
        **{
            each.name: _project(each, getattr(message, each.name), version)
            for each in message.FIELDS
        }
    )


def _project(each: Field, value: Any, version: int) -> Any:
    if version not in each.versions:
        return each.make_default()
    if value is None:
        return None if version in each.nullable else _zero(each.type)
    if isinstance(each.type, Array) and isinstance(each.type.element, type):
        return [project(item, version) for item in value]
    return project(value, version) if isinstance(value, Struct) else value


def _zero(kind: FieldType) -> Any:
    if isinstance(kind, Primitive):
        return kind.zero
    return [] if isinstance(kind, Array) else kind()


def versions_of(cls: type[Message]) -> range:
    return range(cls.MIN_VERSION, cls.MAX_VERSION + 1)
