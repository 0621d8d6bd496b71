"""Where records lie in a file, in place of the records: how a node answers readers beside it.

Over a node's Unix socket a fetched partition has such a reference for its records, and the file
itself comes along as a descriptor. No API of Kafka's has it, so only those who find that socket get
it, and nothing else of the answer is different.
"""

from struct import Struct
from typing import NamedTuple

LOCAL_READS_SOCKET = "local.reads.socket"
"""The setting of a broker that names its Unix socket, as `@name`; other brokers have none."""

_MARK = b"tidelog:file-ref"
_REFERENCE = Struct(f">{len(_MARK)}sqq")

# Less than the header of any batch: records are never taken for a reference.
SIZE_BYTES = _REFERENCE.size


class FileReference(NamedTuple):
    """A range of the file that comes with it."""

    position: int
    size_bytes: int

    def encode(self) -> bytes:
        return _REFERENCE.pack(_MARK, self.position, self.size_bytes)


def decode_file_reference(records: bytes | bytearray | memoryview) -> FileReference | None:
    """The reference that stands for records; None if these are records."""
    if len(records) != SIZE_BYTES:
        return None
    mark, position, size_bytes = _REFERENCE.unpack(records)
    return FileReference(position, size_bytes) if mark == _MARK else None
