"""The language in which messages are declared.

A message is a class, its fields are class attributes, written once with their version ranges:

    class MetadataRequestTopic(Struct):
        topic_id: bytes = field(UUID, "10+")
        name: str | None = field(STRING, "0+", nullable="10+")

    class MetadataRequest(Message, api_key=3, versions="0-13", flexible="9+"):
        topics: list[MetadataRequestTopic] | None = field(
            Array(MetadataRequestTopic), "0+", nullable="1+"
        )
        allow_auto_topic_creation: bool = field(BOOL, "4+", default=True)

From that the class gets slots, a keyword constructor with defaults, equality and a repr; and, per
version on first use, a decoder and an encoder that `codegen` writes as straight-line code.
A field that a version lacks is left out when encoding and has its default after decoding.
Tagged fields that the class does not know are skipped.
"""

import struct
from collections.abc import Callable
from typing import Any, ClassVar, Self, dataclass_transform

from tidelog.protocol.codegen import Decoder, Encoder, compile_decoder, compile_encoder
from tidelog.protocol.errors import ProtocolError
from tidelog.protocol.fields import (
    BOOL,
    BYTES,
    FLOAT64,
    INT8,
    INT16,
    INT32,
    INT64,
    NEVER,
    RECORDS,
    STRING,
    UINT16,
    UINT32,
    UUID,
    Array,
    Field,
    FieldType,
    Primitive,
    parse_versions,
)

__all__ = [
    "BOOL",
    "BYTES",
    "FLOAT64",
    "INT8",
    "INT16",
    "INT32",
    "INT64",
    "NEVER",
    "OWN_TAGS_FROM",
    "RECORDS",
    "STRING",
    "UINT16",
    "UINT32",
    "UUID",
    "Array",
    "Field",
    "Message",
    "Struct",
    "field",
]

OWN_TAGS_FROM = 10_000
"""Tags of fields that Kafka does not have: it gives its own out one after the other, from 0."""

_ZERO = object()


class _Declaration:
    """A field before its class, and so its name, exists."""

    __slots__ = ("default", "nullable", "tag", "tagged", "type", "versions")

    def __init__(
        self,
        type: FieldType,
        versions: str,
        nullable: str,
        default: Any,
        tag: int | None,
        tagged: str,
    ) -> None:
        self.type = type
        self.versions = versions
        self.nullable = nullable
        self.default = default
        self.tag = tag
        self.tagged = tagged

    def named(self, name: str) -> Field:
        default = self.default
        if default is _ZERO:
            default = self.type.zero if isinstance(self.type, Primitive) else ()
        if default is None and not self.nullable:
            raise TypeError(f"{name} has the default None but is nullable in no version")
        return Field(
            name=name,
            type=self.type,
            versions=parse_versions(self.versions),
            nullable=parse_versions(self.nullable),
            default=default,
            tag=self.tag,
            tagged=parse_versions(self.tagged),
        )


def field(
    type: FieldType,
    versions: str,
    *,
    nullable: str = "",
    default: Any = _ZERO,
    tag: int | None = None,
    tagged: str = "",
) -> Any:
    """Declare a field present in `versions`, in the tagged section in `tagged`.

    Without a default it is the zero value of its type: 0, False, "", b"", [], a struct of zeros.
    """
    return _Declaration(type, versions, nullable, default, tag, tagged)


@dataclass_transform(kw_only_default=True)
class _StructMeta(type):
    def __new__(
        mcs,
        name: str,
        bases: tuple[type, ...],
        namespace: dict[str, Any],
        *,
        api_key: int = -1,
        versions: str = "0+",
        flexible: str = "none",
    ) -> Any:
        fields = tuple(
            value.named(key) for key, value in namespace.items() if isinstance(value, _Declaration)
        )
        for each in fields:
            del namespace[each.name]
        namespace["__slots__"] = tuple(each.name for each in fields)
        namespace["FIELDS"] = fields
        namespace["__init__"] = _first_construction
        supported, flexible_range = parse_versions(versions), parse_versions(flexible)
        namespace["API_KEY"] = api_key
        namespace["MIN_VERSION"] = supported.low
        namespace["MAX_VERSION"] = supported.high
        namespace["FLEXIBLE_FROM"] = flexible_range.low if flexible_range.high >= 0 else NEVER
        namespace["_decoders"] = {}
        namespace["_encoders"] = {}
        cls = super().__new__(mcs, name, bases, namespace)
        cls._keeps_view = _holds_records(cls)  # type: ignore[attr-defined]
        return cls


def _first_construction(self: Any, **values: Any) -> None:
    """Stands in until a class is first used: most processes use few of the hundreds."""
    cls = type(self)
    cls.__init__ = _constructor(cls.FIELDS)
    cls.__init__(self, **values)


def _constructor(fields: tuple[Field, ...]) -> Callable[..., None]:
    """`__init__(self, *, a=0, b=...)`: as fast as one written by hand."""
    scope: dict[str, Any] = {"_ZERO": _ZERO}
    parameters, body = [], []
    for each in fields:
        name = each.name
        if each.is_mutable:
            scope[f"make_{name}"] = list if isinstance(each.type, Array) else each.type
            parameters.append(f"{name}=_ZERO")
            body.append(f"self.{name} = make_{name}() if {name} is _ZERO else {name}")
        else:
            scope[f"default_{name}"] = each.default
            parameters.append(f"{name}=default_{name}")
            body.append(f"self.{name} = {name}")
    signature = ", ".join(["self", "*", *parameters]) if parameters else "self"
    source = f"def __init__({signature}):\n" + "".join(f"    {line}\n" for line in body or ["pass"])
    exec(source, scope)
    constructor: Callable[..., None] = scope["__init__"]
    return constructor


def _holds_records(cls: Any) -> bool:
    for each in cls.FIELDS:
        inner = each.type.element if isinstance(each.type, Array) else each.type
        if inner is RECORDS or (isinstance(inner, type) and _holds_records(inner)):
            return True
    return False


class Struct(metaclass=_StructMeta):
    """The base of structs nested in messages."""

    FIELDS: ClassVar[tuple[Field, ...]]
    __hash__ = None  # type: ignore[assignment]

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and all(
            getattr(self, each.name) == getattr(other, each.name) for each in self.FIELDS
        )

    def __repr__(self) -> str:
        shown = (f"{each.name}={getattr(self, each.name)!r}" for each in self.FIELDS)
        return f"{type(self).__name__}({', '.join(shown)})"


class Message(Struct):
    """A request, a response or a record: what is encoded and decoded as a whole."""

    API_KEY: ClassVar[int]
    MIN_VERSION: ClassVar[int]
    MAX_VERSION: ClassVar[int]
    FLEXIBLE_FROM: ClassVar[int]  # NEVER when no version is flexible
    _decoders: ClassVar[dict[int, Decoder]]
    _encoders: ClassVar[dict[int, Encoder]]
    _keeps_view: ClassVar[bool]

    @classmethod
    def decode(cls, data: bytes | bytearray | memoryview, version: int, offset: int = 0) -> Self:
        """The message that fills `data` from `offset` to its end.

        Fields of type RECORDS are views into `data`; everything else is copied out of it.
        Anything malformed, and any byte left over, is a ProtocolError.
        """
        message, end = cls.decode_prefix(data, version, offset)
        if end != len(data):
            raise ProtocolError(
                f"{cls.__name__} v{version} ends at byte {end} of a body of {len(data)}"
            )
        return message

    @classmethod
    def decode_prefix(
        cls, data: bytes | bytearray | memoryview, version: int, offset: int = 0
    ) -> tuple[Self, int]:
        """The message at `offset` and the position after it; more may follow."""
        decoder = cls._decoders.get(version) or cls._make_decoder(version)
        skipped = 0
        if cls._keeps_view:
            data = memoryview(data)
        elif type(data) is not bytes:
            data, skipped, offset = bytes(memoryview(data)[offset:]), offset, 0
        try:
            message, end = decoder(data, offset)
        except (struct.error, IndexError, UnicodeDecodeError) as error:
            raise ProtocolError(f"{cls.__name__} v{version} is malformed: {error}") from None
        if end > len(data):
            raise ProtocolError(f"{cls.__name__} v{version} is cut off at {len(data)} bytes")
        return message, end + skipped

    def encode(self, version: int) -> bytes:
        """The bytes of this message; ProtocolError if the version or a value does not fit."""
        try:
            return b"".join(self.encode_parts(version))
        except TypeError as error:
            raise self._unfit(version, error) from error

    def encode_parts(self, version: int) -> list[bytes]:
        """The same in pieces, so that records, which may be any buffer, are not copied."""
        encoder = self._encoders.get(version) or self._make_encoder(version)
        parts: list[bytes] = []
        try:
            encoder(self, parts.append)
        except (struct.error, TypeError, AttributeError, UnicodeEncodeError) as error:
            raise self._unfit(version, error) from error
        return parts

    def _unfit(self, version: int, error: Exception) -> ProtocolError:
        return ProtocolError(f"{type(self).__name__} v{version} cannot be encoded: {error}")

    @classmethod
    def _make_decoder(cls, version: int) -> Decoder:
        cls._check_version(version)
        decoder = compile_decoder(cls, version, flexible=version >= cls.FLEXIBLE_FROM)
        cls._decoders[version] = decoder
        return decoder

    @classmethod
    def _make_encoder(cls, version: int) -> Encoder:
        cls._check_version(version)
        encoder = compile_encoder(cls, version, flexible=version >= cls.FLEXIBLE_FROM)
        cls._encoders[version] = encoder
        return encoder

    @classmethod
    def _check_version(cls, version: int) -> None:
        if not cls.MIN_VERSION <= version <= cls.MAX_VERSION:
            raise ProtocolError(
                f"{cls.__name__} has the versions {cls.MIN_VERSION} to {cls.MAX_VERSION},"
                f" not {version}"
            )
