"""Writes encoders: message in, pieces of bytes out.

An encoder hands its pieces to `write` (the `append` of a list): joining a list once is cheaper
than growing a buffer, and records stay uncopied until then.
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
from tidelog.protocol.fields import STRING, Array, Field, FieldType, Primitive
from tidelog.protocol.varint import encode_uvarint

Encoder = Callable[[Any, Callable[[bytes], None]], None]


def compile_encoder(cls: Any, version: int, *, flexible: bool) -> Encoder:
    """`encode(message, write)`."""
    encoder: Encoder = write_encoder(cls, version, flexible=flexible).compile()
    return encoder


def write_encoder(cls: Any, version: int, *, flexible: bool) -> Source:
    writer = _EncoderWriter(cls, version, flexible=flexible)
    return writer.write()


class _EncoderWriter:
    def __init__(self, cls: Any, version: int, *, flexible: bool) -> None:
        self.cls = cls
        self.version = version
        self.flexible = flexible
        self.source = Source(f"encode {cls.__name__} v{version}", "message, write")
        self.source.scope |= {"array_struct": array_struct, "encode_uvarint": encode_uvarint}
        self._run: list[tuple[str, str]] = []
        self._write = "write"

    def write(self) -> Source:
        self._struct(self.cls, "message")
        self._flush()
        self.source.line("return None")
        return self.source

    def _put(self, code: str, value: str) -> None:
        """Add a fixed-width value to the run that one pack writes."""
        self._run.append((code, value))

    def _packed(self, run: list[tuple[str, str]]) -> str:
        """The expression that packs a run; padding ('x') is a zero byte that takes no value."""
        layout = struct.Struct(">" + "".join(code for code, _ in run))
        values = [value for code, value in run if code != "x"]
        if not values:
            return repr(bytes(layout.size))
        pack = self.source.refer("pack", layout.pack)
        return f"{pack}({', '.join(values)})"

    def _flush(self) -> None:
        if self._run:
            self.source.line(f"{self._write}({self._packed(self._run)})")
            self._run.clear()

    def _struct(self, cls: Any, value: str) -> None:
        tagged: list[Field] = []
        for each in cls.FIELDS:
            if self.version not in each.versions:
                continue
            if self.flexible and each.is_tagged(self.version):
                tagged.append(each)
                continue
            self._value(each.type, f"{value}.{each.name}", self.version in each.nullable)
        if self.flexible:
            if tagged:
                self._tags(value, sorted(tagged, key=lambda each: each.tag or 0))
            else:
                self._put("x", "")

    def _value(self, kind: FieldType, value: str, nullable: bool) -> None:
        if isinstance(kind, Array):
            self._array(kind, value, nullable)
        elif isinstance(kind, Primitive):
            if kind.code:
                self._put(kind.code, value)
            else:
                self._bytes(kind, value, nullable)
        elif nullable:
            self._nullable_struct(kind, value)
        else:
            local = self.source.fresh("o")
            self.source.line(f"{local} = {value}")
            self._struct(kind, local)

    def _nullable_struct(self, kind: type[Any], value: str) -> None:
        local = self.source.fresh("o")
        self._flush()
        self.source.line(f"{local} = {value}")
        with self.source.block(f"if {local} is None:"):
            self.source.line(f"{self._write}(b'\\xff')")
        with self.source.block("else:"):
            self._put("b", "1")
            self._struct(kind, local)
            self._flush()

    def _length(self, code: str, count: str) -> None:
        """Write a length (-1 is null). Ends the run."""
        if not self.flexible:
            self._put(code, count)
            self._flush()
            return
        self.source.line(f"{count} += 1")
        with self.source.block(f"if {count} < 128:"):
            self.source.line(f"{self._write}({self._packed([*self._run, ('B', count)])})")
        with self.source.block("else:"):
            before = f"{self._packed(self._run)} + " if self._run else ""
            self.source.line(f"{self._write}({before}encode_uvarint({count}))")
        self._run.clear()

    def _bytes(self, kind: Primitive, value: str, nullable: bool) -> None:
        raw, count = self.source.fresh("b"), self.source.fresh("n")
        encode = ".encode()" if kind is STRING else ""
        if nullable:
            self.source.line(f"{raw} = {value}")
            with self.source.block(f"if {raw} is None:"):
                self.source.line(f"{raw} = b''")
                self.source.line(f"{count} = -1")
            with self.source.block("else:"):
                if encode:
                    self.source.line(f"{raw} = {raw}{encode}")
                self.source.line(f"{count} = len({raw})")
        else:
            self.source.line(f"{raw} = {value}{encode}")
            self.source.line(f"{count} = len({raw})")
        self._length("h" if kind is STRING else "i", count)
        self.source.line(f"{self._write}({raw})")

    def _array(self, kind: Array, value: str, nullable: bool) -> None:
        items, count = self.source.fresh("items"), self.source.fresh("n")
        element = kind.element
        self.source.line(f"{items} = {value}")
        if isinstance(element, Primitive) and len(element.code) == 1:
            self._numbers(element, items, nullable)
            return
        if nullable:
            with self.source.block(f"if {items} is None:"):
                self.source.line(f"{items} = ()")
                self.source.line(f"{count} = -1")
            with self.source.block("else:"):
                self.source.line(f"{count} = len({items})")
        else:
            self.source.line(f"{count} = len({items})")
        self._length("i", count)
        item = self.source.fresh("o")
        with self.source.block(f"for {item} in {items}:"):
            if isinstance(element, Primitive):
                self._value(element, item, False)
            else:
                self._struct(element, item)
            self._flush()

    def _numbers(self, element: Primitive, items: str, nullable: bool) -> None:
        self._flush()
        if not nullable:
            self._present_numbers(element, items)
            return
        null = b"\x00" if self.flexible else b"\xff\xff\xff\xff"
        with self.source.block(f"if {items} is None:"):
            self.source.line(f"{self._write}({null!r})")
        with self.source.block("else:"):
            self._present_numbers(element, items)

    def _present_numbers(self, element: Primitive, items: str) -> None:
        """One pack writes the length of an array and all its numbers, if they are few."""
        count = self.source.fresh("n")
        self.source.line(f"{count} = len({items})")
        layouts = short_array_structs(element.code, "B" if self.flexible else "i")
        short = self.source.refer("packs", tuple(each.pack for each in layouts))
        length = f"{count} + 1" if self.flexible else count
        with self.source.block(f"if {count} <= {SHORT_ARRAY}:"):
            self.source.line(f"{self._write}({short}[{count}]({length}, *{items}))")
        with self.source.block("else:"):
            self._length("i", count)
            layout = f"array_struct({element.code!r}, len({items}))"
            self.source.line(f"{self._write}({layout}.pack(*{items}))")

    def _tags(self, value: str, tagged: list[Field]) -> None:
        """Tagged fields are written only when they differ from their default."""
        self._flush()
        pieces, count = self.source.fresh("pieces"), self.source.fresh("tags")
        outer = self._write
        self.source.line(f"{pieces} = []")
        self.source.line(f"{count} = 0")
        for each in tagged:
            local = self.source.fresh("t")
            self.source.line(f"{local} = {value}.{each.name}")
            with self.source.block(f"if {self._differs(each, local)}:"):
                content = self.source.fresh("content")
                self.source.line(f"{content} = []")
                self._write = f"{content}.append"
                self._tag_content(each, local)
                self._write = outer
                self.source.line(f"{content} = b''.join({content})")
                self.source.line(
                    f"{pieces}.append({encode_uvarint(each.tag or 0)!r}"
                    f" + encode_uvarint(len({content})) + {content})"
                )
                self.source.line(f"{count} += 1")
        self.source.line(f"{outer}(encode_uvarint({count}))")
        with self.source.block(f"for {count} in {pieces}:"):
            self.source.line(f"{outer}({count})")

    def _differs(self, each: Field, local: str) -> str:
        if each.default is None:
            return f"{local} is not None"
        if isinstance(each.type, Array):
            # null and empty differ on the wire; empty is the default.
            return f"{local} is None or {local}" if each.nullable.high >= 0 else local
        if isinstance(each.type, Primitive):
            return f"{local} != {self.source.refer('default', each.default)}"
        return self._struct_differs(each.type, local)

    def _struct_differs(self, cls: type[Any], local: str) -> str:
        """Whether a struct says anything, asked field by field: equality would be a call."""
        if any(not isinstance(each.type, Primitive) for each in cls.FIELDS):
            return f"{local} != {self.source.refer('default', cls())}"
        fields = (
            f"{local}.{each.name} != {self.source.refer('default', each.default)}"
            for each in cls.FIELDS
        )
        return " or ".join(fields)

    def _tag_content(self, each: Field, local: str) -> None:
        nullable = self.version in each.nullable
        if nullable and isinstance(each.type, type):
            with self.source.block(f"if {local} is None:"):
                self.source.line(f"{self._write}(b'\\x00')")
            with self.source.block("else:"):
                self._put("b", "1")
                self._struct(each.type, local)
                self._flush()
            return
        self._value(each.type, local, nullable)
        self._flush()
