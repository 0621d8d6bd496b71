"""The latest offset of each key in the dirty part of a log, in bounded memory."""

from __future__ import annotations

from hashlib import blake2b

DIGEST_BYTES = 16
# A dictionary entry of CPython at its worst, which is just after the table has doubled with the old
# table still alive: 64 bytes for the digest, 32 for the offset, 90 for the two tables.
ENTRY_BYTES = 192


class KeyOffsets:
    """A map from a key's digest to the key's latest offset.

    A key shorter than 16 bytes stands for itself; a longer one is kept as a 16-byte digest, so that
    the size of the map does not depend on the size of the keys. Two keys of the same digest would
    be taken for one; with 128 bits that does not happen.
    """

    __slots__ = ("_offsets", "capacity", "latest_offset")

    def __init__(self, memory_bytes: int) -> None:
        self.capacity = max(1, memory_bytes // ENTRY_BYTES)
        self.latest_offset = -1
        """Every record up to here has been seen: a key that is absent has no later value below."""
        self._offsets: dict[bytes, int] = {}

    def __len__(self) -> int:
        return len(self._offsets)

    def put(self, key: bytes, offset: int) -> bool:
        """Records that `key` occurs at `offset`; False, and no change, when the map is full.
        Offsets come in ascending order."""
        if len(key) >= DIGEST_BYTES:
            key = blake2b(key, digest_size=DIGEST_BYTES).digest()
        offsets = self._offsets
        if len(offsets) >= self.capacity and key not in offsets:
            return False
        offsets[key] = offset
        return True

    def get(self, key: bytes) -> int:
        """The latest offset of `key` in the mapped part, or -1."""
        if len(key) >= DIGEST_BYTES:
            key = blake2b(key, digest_size=DIGEST_BYTES).digest()
        return self._offsets.get(key, -1)
