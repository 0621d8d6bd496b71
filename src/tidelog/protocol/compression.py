"""The four compressions of record batches, as Kafka's own clients write and read them.

A batch names its codec in its attributes. What a client sends is not trusted: output is made
piece by piece and stops at the caller's limit, so a small batch cannot fill the memory.
"""

import struct
import sys
import zlib
from enum import IntEnum

import cramjam
import lz4.frame
from isal import igzip, isal_zlib

from tidelog.protocol.errors import ApiError, ErrorCode

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd


class Compression(IntEnum):
    """The codecs, by their number in the attributes of a batch."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


# The framing of snappy-java: this header, then blocks of a length and raw snappy.
_XERIAL_MAGIC = b"\x82SNAPPY\x00"
_XERIAL_HEADER = _XERIAL_MAGIC + struct.pack(">ii", 1, 1)
_XERIAL_BLOCK_BYTES = 32 * 1024
_BLOCK_LENGTH = struct.Struct(">i")
_GZIP_WINDOW_BITS = 31
# From here on lz4 searches for the best matches; below it only tries to be fast.
_LZ4_HIGH_COMPRESSION_LEVEL_MIN = 3
_LZ4_PIECE_BYTES = 1024 * 1024
_LZ4_USUAL_RATIO = 8
_ZSTD_PIECE_BYTES = 256 * 1024
# The largest window that zstd itself accepts by default; more is memory for the asking.
_ZSTD_OPTIONS: dict[int, int] = {zstd.DecompressionParameter.window_log_max: 27}
_MALFORMED: tuple[type[Exception], ...] = (
    cramjam.DecompressionError,
    isal_zlib.IsalError,  # type: ignore[assignment]  # its stub declares an instance
    zstd.ZstdError,
    struct.error,
    EOFError,
    RuntimeError,  # lz4 has no error of its own
)


def compress(
    codec: Compression, data: bytes | bytearray | memoryview, level: int | None = None
) -> bytes:
    """The records section of a batch, compressed.

    `level` is Kafka's: gzip 1 to 9, lz4 1 to 17, zstd up to 22; None is what costs the least time
    for a usual ratio. Snappy has none.
    """
    if codec is Compression.NONE:
        return bytes(data)
    if codec is Compression.GZIP:
        if level is None:
            return bytes(igzip.compress(data))
        # igzip is several times faster, but knows no level that compresses as well as zlib's 3.
        return zlib.compress(data, level, wbits=_GZIP_WINDOW_BITS)
    if codec is Compression.SNAPPY:
        return _compress_snappy(memoryview(data))
    if codec is Compression.LZ4:
        # What Kafka's reader takes: independent blocks of 64 KB.
        return bytes(
            lz4.frame.compress(
                data,
                compression_level=(
                    0 if level is None else max(level, _LZ4_HIGH_COMPRESSION_LEVEL_MIN)
                ),
                block_size=lz4.frame.BLOCKSIZE_MAX64KB,
                block_linked=False,
                store_size=False,
            )
        )
    return zstd.compress(data, level)


def decompress(codec: Compression, data: bytes | bytearray | memoryview, limit_bytes: int) -> bytes:
    """The records section in the clear.

    ApiError: CORRUPT_MESSAGE if the data is not of this codec, MESSAGE_TOO_LARGE if there would be
    more than `limit_bytes` of it.
    """
    try:
        if codec is Compression.NONE:
            return bytes(data)
        if codec is Compression.GZIP:
            return _decompress_gzip(data, limit_bytes)
        if codec is Compression.SNAPPY:
            return _decompress_snappy(memoryview(data), limit_bytes)
        if codec is Compression.LZ4:
            return _decompress_lz4(data, limit_bytes)
        return _decompress_zstd(data, limit_bytes)
    except _MALFORMED as error:
        raise ApiError(
            ErrorCode.CORRUPT_MESSAGE, f"the records are not {codec.name.lower()}: {error}"
        ) from None


def _too_large(limit_bytes: int) -> ApiError:
    return ApiError(
        ErrorCode.MESSAGE_TOO_LARGE, f"the records decompress to more than {limit_bytes} bytes"
    )


def _compress_snappy(data: memoryview) -> bytes:
    parts: list[bytes] = [_XERIAL_HEADER]
    for at in range(0, len(data), _XERIAL_BLOCK_BYTES):
        block = bytes(cramjam.snappy.compress_raw(data[at : at + _XERIAL_BLOCK_BYTES]))
        parts.append(_BLOCK_LENGTH.pack(len(block)))
        parts.append(block)
    return b"".join(parts)


def _decompress_snappy(data: memoryview, limit_bytes: int) -> bytes:
    """With snappy-java's framing, or without: some clients send the raw form."""
    magic = _XERIAL_MAGIC
    if data[: len(magic)] != magic:
        if cramjam.snappy.decompress_raw_len(data) > limit_bytes:
            raise _too_large(limit_bytes)
        return bytes(cramjam.snappy.decompress_raw(data))
    parts: list[bytes] = []
    total = at = 0
    while at < len(data):
        if data[at : at + len(magic)] == magic:
            at += len(_XERIAL_HEADER)
            continue
        (size,) = _BLOCK_LENGTH.unpack_from(data, at)
        at += _BLOCK_LENGTH.size
        if not 0 <= size <= len(data) - at:
            raise EOFError(f"a block of {size} bytes in the last {len(data) - at}")
        block = data[at : at + size]
        total += cramjam.snappy.decompress_raw_len(block)
        if total > limit_bytes:
            raise _too_large(limit_bytes)
        parts.append(bytes(cramjam.snappy.decompress_raw(block)))
        at += size
    return b"".join(parts)


def _decompress_gzip(data: bytes | bytearray | memoryview, limit_bytes: int) -> bytes:
    """One or more gzip members in a row."""
    parts: list[bytes] = []
    room = limit_bytes
    rest: bytes | bytearray | memoryview = data
    while rest:
        member = isal_zlib.decompressobj(wbits=_GZIP_WINDOW_BITS)
        part = member.decompress(rest, room + 1)
        room -= len(part)
        if room < 0:
            raise _too_large(limit_bytes)
        if not member.eof:
            raise EOFError("the end is missing")
        parts.append(part)
        rest = member.unused_data
    return b"".join(parts)


def _decompress_lz4(data: bytes | bytearray | memoryview, limit_bytes: int) -> bytes:
    """One or more lz4 frames in a row."""
    parts: list[bytes] = []
    room = limit_bytes
    rest: bytes | bytearray | memoryview | None = data
    while rest:
        frame = lz4.frame.LZ4FrameDecompressor()
        # It takes all the memory that it may fill, so it is not asked for the limit at once.
        piece_bytes = max(_LZ4_PIECE_BYTES, _LZ4_USUAL_RATIO * len(rest))
        while not frame.eof:
            if not frame.needs_input:
                rest = b""
            part = frame.decompress(rest, min(piece_bytes, room + 1))
            room -= len(part)
            if room < 0:
                raise _too_large(limit_bytes)
            if not part and not frame.eof:
                raise EOFError("the end is missing")
            parts.append(part)
            piece_bytes *= 2
        rest = frame.unused_data
    return b"".join(parts)


def _decompress_zstd(data: bytes | bytearray | memoryview, limit_bytes: int) -> bytes:
    """One or more zstd frames in a row."""
    parts: list[bytes] = []
    room = limit_bytes
    rest: bytes | bytearray | memoryview = data
    while rest:
        frame = zstd.ZstdDecompressor(options=_ZSTD_OPTIONS)
        while not frame.eof:
            part = frame.decompress(rest, min(_ZSTD_PIECE_BYTES, room + 1))
            # The frame keeps what it has not looked at yet.
            rest = b""
            room -= len(part)
            if room < 0:
                raise _too_large(limit_bytes)
            if not part and not frame.eof and frame.needs_input:
                raise EOFError("the end is missing")
            parts.append(part)
        rest = frame.unused_data
    return b"".join(parts)
