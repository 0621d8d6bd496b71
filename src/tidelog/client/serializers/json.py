"""JSON, with or without a type that every value must fit."""

from typing import Any

import msgspec

from tidelog.client.errors import SerializationError


class JsonSerializer:
    """JSON by msgspec. With `type`, values are checked against it on both ways.

    `type` may be a dataclass, a msgspec.Struct, a TypedDict or any annotation: a field that is
    missing or of a wrong type is an error that names its path.
    """

    def __init__(self, type: Any = Any) -> None:
        self._type = type
        self._encoder = msgspec.json.Encoder()
        self._decoder = msgspec.json.Decoder(type)

    def serialize(self, value: Any) -> bytes | None:
        if value is None:
            return None
        try:
            if self._type is not Any:
                msgspec.convert(value, self._type, from_attributes=True)
            return self._encoder.encode(value)
        except (msgspec.ValidationError, TypeError, ValueError) as error:
            raise SerializationError(f"the value does not fit: {error}") from error

    def deserialize(self, data: bytes | None) -> Any:
        if data is None:
            return None
        try:
            return self._decoder.decode(data)
        except msgspec.MsgspecError as error:
            raise SerializationError(f"the bytes are not the expected JSON: {error}") from error
