"""A record as an application sees it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

Headers = Sequence[tuple[str, bytes | None]]
"""Headers keep their order and may repeat a name, as on the wire."""


@dataclass(slots=True, frozen=True)
class Message:
    """One record. `key` and `value` are what the client's serialisers made of the bytes."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    key: Any
    value: Any
    headers: Headers = ()
    raw_key: bytes | None = field(default=None, repr=False)
    raw_value: bytes | None = field(default=None, repr=False)

    def header(self, name: str) -> bytes | None:
        """The value of the last header of this name, or None."""
        for header_name, value in reversed(self.headers):
            if header_name == name:
                return value
        return None


def to_headers(
    headers: Headers | Mapping[str, bytes | str | None] | None,
) -> list[tuple[str, bytes | None]]:
    """Headers as librdkafka takes them, from a mapping or from pairs."""
    if headers is None:
        return []
    pairs = headers.items() if isinstance(headers, Mapping) else headers
    return [(name, value.encode() if isinstance(value, str) else value) for name, value in pairs]
