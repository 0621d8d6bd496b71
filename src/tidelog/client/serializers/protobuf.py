"""Protocol Buffers messages of one generated class."""

from typing import Any

from google.protobuf.message import DecodeError, EncodeError
from google.protobuf.message import Message as ProtobufMessage

from tidelog.client.errors import SerializationError


class ProtobufSerializer:
    """Values of one message class, in the plain wire format."""

    def __init__(self, message_class: type[ProtobufMessage]) -> None:
        self._message_class = message_class

    def serialize(self, value: Any) -> bytes | None:
        if value is None:
            return None
        if not isinstance(value, self._message_class):
            expected = self._message_class.DESCRIPTOR.full_name
            raise SerializationError(f"expected a {expected}, got {type(value).__name__}")
        try:
            return value.SerializeToString()
        except EncodeError as error:
            raise SerializationError(f"the message is not complete: {error}") from error

    def deserialize(self, data: bytes | None) -> Any:
        if data is None:
            return None
        message = self._message_class()
        try:
            message.ParseFromString(data)
        except DecodeError as error:
            raise SerializationError(f"the bytes do not parse: {error}") from error
        return message
