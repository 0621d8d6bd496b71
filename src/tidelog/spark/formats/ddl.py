"""Schemas as text: Spark's DDL, read without a JVM.

A data source runs in Python processes that have no way to the JVM, where Spark keeps its own
parser of DDL. What stands here knows the types that a value can be decoded into:

    id long, name string NOT NULL, at timestamp, tags array<string>,
    price decimal(10, 2) COMMENT 'with tax', `odd name` map<string, struct<x: int, y: int>>

A column may be written `name type` or `name: type`. Types are written in any case.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass

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
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

_SIMPLE: dict[str, Callable[[], DataType]] = {
    "boolean": BooleanType,
    "byte": ByteType,
    "tinyint": ByteType,
    "short": ShortType,
    "smallint": ShortType,
    "int": IntegerType,
    "integer": IntegerType,
    "long": LongType,
    "bigint": LongType,
    "float": FloatType,
    "real": FloatType,
    "double": DoubleType,
    "string": StringType,
    "binary": BinaryType,
    "date": DateType,
    "timestamp": TimestampType,
    "timestamp_ltz": TimestampType,
    "timestamp_ntz": TimestampNTZType,
}
_DECIMALS = ("decimal", "dec", "numeric")
_PRECISION_MAX = 38

_TOKENS = re.compile(
    r"""\s*(?:
        (?P<quoted>`(?:[^`]|``)+`)
      | (?P<text>(?:'(?:[^'\\]|\\.)*')+|(?:"(?:[^"\\]|\\.)*")+)
      | (?P<word>[^\W\d]\w*|\d\w*[^\W\d]\w*)
      | (?P<number>\d+)
      | (?P<sign>[<>(),:])
    )""",
    re.VERBOSE,
)


class DdlError(ValueError):
    """The text is no schema; says where and why."""


@dataclass(frozen=True, slots=True)
class _Token:
    kind: str
    text: str
    at: int


def parse_ddl(text: str) -> StructType:
    """The columns that a DDL text names; raises DdlError."""
    parser = _Parser(text)
    if parser.peek("struct") and parser.peek("<", ahead=1):
        parsed = parser.type()
        assert isinstance(parsed, StructType)
    else:
        parsed = parser.columns(ends=None)
    parser.expect_end()
    return parsed


class _Parser:
    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = _tokens(text)
        self._at = 0

    def columns(self, ends: str | None) -> StructType:
        fields = []
        while True:
            fields.append(self._column())
            if not self._take(","):
                break
        if ends is not None:
            self._expect(ends)
        return StructType(fields)

    def type(self) -> DataType:
        token = self._next("a type")
        name = token.text.lower()
        if token.kind == "word":
            if name in _SIMPLE:
                return _SIMPLE[name]()
            if name in _DECIMALS:
                return self._decimal(token)
            if name == "array":
                self._expect("<")
                element = self.type()
                self._expect(">")
                return ArrayType(element)
            if name == "map":
                self._expect("<")
                key = self.type()
                self._expect(",")
                value = self.type()
                self._expect(">")
                return MapType(key, value)
            if name == "struct":
                self._expect("<")
                return self.columns(ends=">")
        known = ", ".join([*_SIMPLE, "decimal(p, s), array<...>, map<..., ...>, struct<...>"])
        raise self._error(f"{token.text!r} is no type (known are {known})", token.at)

    def peek(self, text: str, ahead: int = 0) -> bool:
        at = self._at + ahead
        return at < len(self._tokens) and self._tokens[at].text.lower() == text

    def expect_end(self) -> None:
        if self._at < len(self._tokens):
            token = self._tokens[self._at]
            raise self._error(f"{token.text!r} was not expected", token.at)

    def _column(self) -> StructField:
        token = self._next("a column name")
        if token.kind not in ("word", "quoted"):
            raise self._error(f"{token.text!r} is no column name", token.at)
        name = token.text
        if token.kind == "quoted":
            name = name[1:-1].replace("``", "`")
        self._take(":")
        column_type = self.type()
        # Whether a column may be null is not the schema's to say: a tombstone is null everywhere.
        if self._take("not"):
            self._expect("null")
        if self._take("comment"):
            self._next("the text of the comment")
        return StructField(name, column_type)

    def _decimal(self, token: _Token) -> DecimalType:
        precision, scale = 10, 0
        if self._take("("):
            precision = self._number()
            if self._take(","):
                scale = self._number()
            self._expect(")")
        if not 1 <= precision <= _PRECISION_MAX or scale > precision:
            raise self._error(
                f"a decimal has 1 to {_PRECISION_MAX} digits and no more of them after the point, "
                f"not ({precision}, {scale})",
                token.at,
            )
        return DecimalType(precision, scale)

    def _number(self) -> int:
        token = self._next("a number")
        if token.kind != "number":
            raise self._error(f"{token.text!r} is no number", token.at)
        return int(token.text)

    def _take(self, text: str) -> bool:
        if self.peek(text):
            self._at += 1
            return True
        return False

    def _expect(self, text: str) -> None:
        token = self._next(repr(text))
        if token.text.lower() != text:
            raise self._error(f"{text!r} was expected, not {token.text!r}", token.at)

    def _next(self, what: str) -> _Token:
        if self._at >= len(self._tokens):
            raise DdlError(f"{what} is missing at the end of {self._text!r}")
        self._at += 1
        return self._tokens[self._at - 1]

    def _error(self, message: str, at: int) -> DdlError:
        return DdlError(f"{message}, at position {at} of {self._text!r}")


def _tokens(text: str) -> list[_Token]:
    tokens = []
    at = 0
    end = len(text.rstrip())
    while at < end:
        match = _TOKENS.match(text, at)
        if match is None:
            raise DdlError(f"{text[at:].strip()[:20]!r} is not understood, in {text!r}")
        kind = match.lastgroup
        assert kind is not None
        tokens.append(_Token(kind, match[kind], match.start(kind)))
        at = match.end()
    return tokens
