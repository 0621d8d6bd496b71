"""What a field of a message is: its type, the versions that have it, its default.

Message classes are written with these words (see `schema`), and `codegen` turns them into code.
"""

from dataclasses import dataclass
from functools import cache
from typing import Any

from tidelog.protocol.uuids import ZERO_UUID

# Above every version that a message can have.
NEVER = 32767


@dataclass(slots=True, frozen=True)
class VersionRange:
    """The versions `low` to `high`, both included; empty when high < low."""

    low: int
    high: int

    def __contains__(self, version: int) -> bool:
        return self.low <= version <= self.high


@cache
def parse_versions(text: str) -> VersionRange:
    """A range as the schemas write it: "3+", "0-7", "12"; "" or "none" is no version."""
    if text in ("", "none"):
        return VersionRange(0, -1)
    if text.endswith("+"):
        return VersionRange(int(text[:-1]), NEVER)
    low, _, high = text.partition("-")
    return VersionRange(int(low), int(high or low))


@dataclass(slots=True, frozen=True)
class Primitive:
    """A type without parts. Those with a `code` have a fixed width and struct's letter for it."""

    name: str
    zero: Any
    code: str = ""
    size_bytes: int = 0


BOOL = Primitive("bool", False, "?", 1)
INT8 = Primitive("int8", 0, "b", 1)
INT16 = Primitive("int16", 0, "h", 2)
UINT16 = Primitive("uint16", 0, "H", 2)
INT32 = Primitive("int32", 0, "i", 4)
UINT32 = Primitive("uint32", 0, "I", 4)
INT64 = Primitive("int64", 0, "q", 8)
FLOAT64 = Primitive("float64", 0.0, "d", 8)
UUID = Primitive("uuid", ZERO_UUID, "16s", 16)
STRING = Primitive("string", "")
BYTES = Primitive("bytes", b"")
RECORDS = Primitive("records", b"")


@dataclass(slots=True, frozen=True)
class Array:
    """A list of primitives or of structs."""

    element: "Primitive | type[Any]"


FieldType = Primitive | Array | type[Any]


@dataclass(slots=True, frozen=True)
class Field:
    """One field of a struct, as it was declared."""

    name: str
    type: FieldType
    versions: VersionRange
    nullable: VersionRange
    default: Any
    tag: int | None
    tagged: VersionRange

    def is_tagged(self, version: int) -> bool:
        return self.tag is not None and version in self.tagged

    @property
    def is_mutable(self) -> bool:
        """Whether every message needs a default value of its own."""
        return self.default is not None and not isinstance(self.type, Primitive)

    def make_default(self) -> Any:
        if not self.is_mutable:
            return self.default
        return [] if isinstance(self.type, Array) else self.type()  # type: ignore[operator]
