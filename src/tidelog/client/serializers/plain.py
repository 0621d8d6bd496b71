"""The serialiser interface, and the two that need no schema."""

from typing import Any, Protocol

from tidelog.client.errors import SerializationError


class Serializer(Protocol):
    """Turns values into bytes and back. None is a tombstone and stays None on both ways."""

    def serialize(self, value: Any) -> bytes | None: ...

    def deserialize(self, data: bytes | None) -> Any: ...


class BytesSerializer:
    """Bytes as they are; text on the way out is encoded as UTF-8."""

    def serialize(self, value: Any) -> bytes | None:
        if value is None or isinstance(value, bytes):
            return value
        if isinstance(value, str):
            return value.encode()
        if isinstance(value, bytearray | memoryview):
            return bytes(value)
        raise SerializationError(
            f"a {type(value).__name__} is neither bytes nor text: "
            f"give the client a serialiser, for example JsonSerializer()"
        )

    def deserialize(self, data: bytes | None) -> Any:
        return data


class StringSerializer:
    """Text as UTF-8."""

    def serialize(self, value: Any) -> bytes | None:
        if value is None:
            return None
        if not isinstance(value, str):
            raise SerializationError(f"expected text, got {type(value).__name__}")
        return value.encode()

    def deserialize(self, data: bytes | None) -> Any:
        if data is None:
            return None
        try:
            return data.decode()
        except UnicodeDecodeError as error:
            raise SerializationError(f"not UTF-8 text: {error}") from error
