"""Writes decoders: bytes in, message out.

Slices past the end of the buffer come back short instead of failing, so lengths are not checked
one by one: the position only ever grows, hence a length that lies pushes it beyond the end, where
the next fixed-width read fails or `Message.decode` sees it.
"""

import struct
from collections.abc import Callable
from typing import Any

from tidelog.protocol.codegen.source import (
    SHORT_ARRAY,
    Source,
    array_struct,
    short_array_structs,
)
from tidelog.protocol.errors import ProtocolError
from tidelog.protocol.fields import BYTES, RECORDS, STRING, Array, Field, FieldType, Primitive
from tidelog.protocol.varint import Buffer, read_uvarint

Decoder = Callable[[Buffer, int], tuple[Any, int]]


def compile_decoder(cls: Any, version: int, *, flexible: bool) -> Decoder:
    """`decode(data, at) -> (message, end)`; `data` is a view if the class has records."""
    decoder: Decoder = write_decoder(cls, version, flexible=flexible).compile()
    return decoder


def write_decoder(cls: Any, version: int, *, flexible: bool) -> Source:
    writer = _DecoderWriter(cls, version, flexible=flexible)
    return writer.write()


def skip_tags(data: Buffer, at: int, count: int) -> int:
    """The position after `count` tagged fields that nobody here knows."""
    for _ in range(count):
        _, at = read_uvarint(data, at)
        size, at = read_uvarint(data, at)
        at += size
    return at


class _DecoderWriter:
    def __init__(self, cls: Any, version: int, *, flexible: bool) -> None:
        self.cls = cls
        self.version = version
        self.flexible = flexible
        self.source = Source(f"decode {cls.__name__} v{version}", "data, at")
        self.source.scope |= {
            "ProtocolError": ProtocolError,
            "array_struct": array_struct,
            "read_uvarint": read_uvarint,
            "skip_tags": skip_tags,
        }
        self._run: list[tuple[str, str]] = []

    def write(self) -> Source:
        self.source.line("size = len(data)")
        message = self._struct(self.cls)
        self._flush()
        self.source.line(f"return {message}, at")
        return self.source

    def _read(self, code: str, target: str) -> None:
        """Add a fixed-width value to the run that one unpack_from reads."""
        self._run.append((code, target))

    def _flush(self) -> None:
        if not self._run:
            return
        layout = struct.Struct(">" + "".join(code for code, _ in self._run))
        unpack = self.source.refer("unpack", layout.unpack_from)
        targets = ", ".join(target for _, target in self._run)
        self.source.line(f"{targets}, = {unpack}(data, at)")
        self.source.line(f"at += {layout.size}")
        self._run.clear()

    def _struct(self, cls: Any) -> str:
        """Write the fields of a struct; the name of the local that holds it."""
        target = self.source.fresh("o")
        make = self.source.refer(cls.__name__, cls)
        self.source.scope["new"] = object.__new__
        self.source.line(f"{target} = new({make})")
        tagged: list[Field] = []
        for each in cls.FIELDS:
            attribute = f"{target}.{each.name}"
            if self.version not in each.versions:
                self._default(each, attribute)
            elif self.flexible and each.is_tagged(self.version):
                self._default(each, attribute)
                tagged.append(each)
            else:
                self._value(each.type, attribute, self.version in each.nullable, each.name)
        if self.flexible:
            self._tags(target, tagged)
        return target

    def _default(self, each: Field, attribute: str) -> None:
        if not each.is_mutable:
            value = self.source.refer("default", each.default)
        elif isinstance(each.type, Array):
            value = "[]"
        else:
            value = f"{self.source.refer('make', each.type)}()"
        self.source.line(f"{attribute} = {value}")

    def _value(self, kind: FieldType, target: str, nullable: bool, name: str) -> None:
        if isinstance(kind, Array):
            self._array(kind, target, nullable, name)
        elif isinstance(kind, Primitive):
            if kind.code:
                self._read(kind.code, target)
            else:
                self._bytes(kind, target, nullable, name)
        elif nullable:
            self._nullable_struct(kind, target, "b", "< 0")
        else:
            inner = self._struct(kind)
            self._flush()
            self.source.line(f"{target} = {inner}")

    def _nullable_struct(self, kind: type[Any], target: str, code: str, absent: str) -> None:
        marker = self.source.fresh("m")
        self._read(code, marker)
        self._flush()
        with self.source.block(f"if {marker} {absent}:"):
            self.source.line(f"{target} = None")
        with self.source.block("else:"):
            inner = self._struct(kind)
            self._flush()
            self.source.line(f"{target} = {inner}")

    def _length(self, code: str) -> str:
        """Read a length: -1 (or less) is null. Ends the run."""
        count = self.source.fresh("n")
        self._read("B" if self.flexible else code, count)
        self._flush()
        if self.flexible:
            with self.source.block(f"if {count} > 127:"):
                self.source.line(f"{count}, at = read_uvarint(data, at - 1)")
            self.source.line(f"{count} -= 1")
        return count

    def _null(self, target: str, nullable: bool, name: str) -> None:
        with self.source.block("else:"):
            if nullable:
                self.source.line(f"{target} = None")
            else:
                self.source.line(f"raise ProtocolError('{name} must not be null')")

    def _bytes(self, kind: Primitive, target: str, nullable: bool, name: str) -> None:
        count = self._length("h" if kind is STRING else "i")
        with self.source.block(f"if {count} >= 0:"):
            self.source.line(f"end = at + {count}")
            if kind is STRING:
                text = (
                    'str(data[at:end], "utf-8")'
                    if self.cls._keeps_view
                    else ("data[at:end].decode()")
                )
                self.source.line(f"{target} = {text}")
            elif kind is BYTES and self.cls._keeps_view:
                self.source.line(f"{target} = bytes(data[at:end])")
            else:
                assert kind in (BYTES, RECORDS)
                self.source.line(f"{target} = data[at:end]")
            self.source.line("at = end")
        self._null(target, nullable, name)

    def _array(self, kind: Array, target: str, nullable: bool, name: str) -> None:
        count = self._length("i")
        element = kind.element
        with self.source.block(f"if {count} > size - at:"):
            self.source.line(
                f"raise ProtocolError(f'{name} claims {{{count}}} elements in {{size - at}} bytes')"
            )
        with self.source.block(f"if {count} >= 0:"):
            if isinstance(element, Primitive) and len(element.code) == 1:
                self._numbers(element, target, count)
            else:
                self._elements(element, target, count, name)
        self._null(target, nullable, name)

    def _numbers(self, element: Primitive, target: str, count: str) -> None:
        layouts = short_array_structs(element.code)
        short = self.source.refer("unpacks", tuple(each.unpack_from for each in layouts))
        with self.source.block(f"if {count} <= {SHORT_ARRAY}:"):
            self.source.line(f"{target} = list({short}[{count}](data, at))")
        with self.source.block("else:"):
            layout = f"array_struct({element.code!r}, {count})"
            self.source.line(f"{target} = list({layout}.unpack_from(data, at))")
        self.source.line(f"at += {count} * {element.size_bytes}")

    def _elements(self, element: Primitive | type[Any], target: str, count: str, name: str) -> None:
        items = self.source.fresh("items")
        self.source.line(f"{items} = []")
        with self.source.block(f"for _ in range({count}):"):
            if isinstance(element, Primitive):
                item = self.source.fresh("item")
                self._value(element, item, False, name)
            else:
                item = self._struct(element)
            self._flush()
            self.source.line(f"{items}.append({item})")
        self.source.line(f"{target} = {items}")

    def _tags(self, target: str, tagged: list[Field]) -> None:
        count = self.source.fresh("tags")
        self._read("B", count)
        self._flush()
        with self.source.block(f"if {count}:"):
            with self.source.block(f"if {count} > 127:"):
                self.source.line(f"{count}, at = read_uvarint(data, at - 1)")
            if not tagged:
                self.source.line(f"at = skip_tags(data, at, {count})")
                return
            with self.source.block(f"for _ in range({count}):"):
                self._tag(target, tagged)

    def _tag(self, target: str, tagged: list[Field]) -> None:
        tag, end = self.source.fresh("tag"), self.source.fresh("stop")
        self.source.line(f"{tag}, at = read_uvarint(data, at)")
        self.source.line(f"{end}, at = read_uvarint(data, at)")
        self.source.line(f"{end} += at")
        for each in tagged:
            attribute = f"{target}.{each.name}"
            nullable = self.version in each.nullable
            with self.source.block(f"if {tag} == {each.tag}:"):
                if nullable and isinstance(each.type, type):
                    self._nullable_struct(each.type, attribute, "B", "== 0")
                else:
                    self._value(each.type, attribute, nullable, each.name)
                self._flush()
                with self.source.block(f"if at != {end}:"):
                    self.source.line(
                        f"raise ProtocolError('{each.name} does not fill its tagged field')"
                    )
                self.source.line("continue")
        self.source.line(f"at = {end}")
