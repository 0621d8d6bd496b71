"""Compressions, with the framings that clients of several kinds send."""

import gzip
import random
import struct
import sys

import cramjam
import lz4.frame
import pytest
from aiokafka import codec as aiokafka_codec
from kafka import codec as kafka_python_codec

from tidelog.protocol.compression import Compression, compress, decompress
from tidelog.protocol.errors import ApiError, ErrorCode

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

CODECS = [Compression.GZIP, Compression.SNAPPY, Compression.LZ4, Compression.ZSTD]
LIMIT = 10_000_000
_dice = random.Random(1)
SAMPLES = {
    "empty": b"",
    "short": b"tide",
    "text": b"the log is the truth " * 5000,
    "noise": _dice.randbytes(100_000),
}
every_codec = pytest.mark.parametrize("codec", CODECS, ids=lambda each: each.name)
every_sample = pytest.mark.parametrize("data", SAMPLES.values(), ids=SAMPLES.keys())


@every_codec
@every_sample
def test_data_survives_a_round_trip(codec: Compression, data: bytes) -> None:
    packed = compress(codec, data)
    for form in (packed, bytearray(packed), memoryview(packed)):
        assert decompress(codec, form, LIMIT) == data
    assert decompress(codec, packed, len(data)) == data


@pytest.mark.parametrize(
    ("codec", "levels"),
    [
        (Compression.GZIP, (1, 6, 9)),
        (Compression.LZ4, (1, 2, 3, 9, 12, 17)),
        (Compression.ZSTD, (-131072, -1, 0, 1, 3, 22)),
    ],
)
@every_sample
def test_every_reader_takes_data_of_every_level(
    codec: Compression, levels: tuple[int, ...], data: bytes
) -> None:
    decode = getattr(aiokafka_codec, f"{codec.name.lower()}_decode")
    for level in levels:
        packed = compress(codec, data, level)
        assert decompress(codec, packed, LIMIT) == data
        if data:
            assert bytes(decode(packed)) == data


def test_no_compression_is_the_data_itself() -> None:
    assert compress(Compression.NONE, b"abc") == b"abc"
    assert decompress(Compression.NONE, memoryview(b"abc"), LIMIT) == b"abc"


@every_codec
@every_sample
def test_aiokafka_reads_ours_and_we_read_aiokafkas(codec: Compression, data: bytes) -> None:
    name = codec.name.lower()
    if data:
        theirs = getattr(aiokafka_codec, f"{name}_decode")(compress(codec, data))
        assert bytes(theirs) == data
    ours = decompress(codec, bytes(getattr(aiokafka_codec, f"{name}_encode")(data)), LIMIT)
    assert ours == data


@pytest.mark.parametrize("codec", [Compression.GZIP, Compression.LZ4, Compression.ZSTD])
def test_kafka_python_reads_ours_and_we_read_kafka_pythons(codec: Compression) -> None:
    name, data = codec.name.lower(), SAMPLES["text"]
    assert bytes(getattr(kafka_python_codec, f"{name}_decode")(compress(codec, data))) == data
    theirs = bytes(getattr(kafka_python_codec, f"{name}_encode")(data))
    assert decompress(codec, theirs, LIMIT) == data


def test_the_standard_library_reads_our_gzip() -> None:
    assert gzip.decompress(compress(Compression.GZIP, SAMPLES["text"])) == SAMPLES["text"]


def test_snappy_is_read_with_and_without_the_framing_of_java() -> None:
    data = SAMPLES["text"]
    raw = bytes(cramjam.snappy.compress_raw(data))
    assert decompress(Compression.SNAPPY, raw, LIMIT) == data
    framed = compress(Compression.SNAPPY, data)
    assert framed.startswith(b"\x82SNAPPY\x00\x00\x00\x00\x01\x00\x00\x00\x01")
    # Streams that were put one behind the other, each with its header.
    assert decompress(Compression.SNAPPY, framed + framed, LIMIT) == data + data
    one_block = b"\x82SNAPPY\x00" + struct.pack(">iii", 1, 1, len(raw)) + raw
    assert decompress(Compression.SNAPPY, one_block, LIMIT) == data


def test_frames_in_a_row_are_all_read() -> None:
    first, second = b"first " * 100, b"second " * 100
    for codec in (Compression.GZIP, Compression.LZ4, Compression.ZSTD):
        packed = compress(codec, first) + compress(codec, second)
        assert decompress(codec, packed, LIMIT) == first + second


def test_zstd_frames_without_a_size_are_read() -> None:
    packed = zstd.compress(b"abc" * 99, options={zstd.CompressionParameter.content_size_flag: 0})
    assert decompress(Compression.ZSTD, packed, LIMIT) == b"abc" * 99


def test_zstd_frames_that_need_a_large_window_are_refused() -> None:
    options: dict[int, int] = {
        zstd.CompressionParameter.window_log: 28,
        zstd.CompressionParameter.content_size_flag: 0,
    }
    compressor = zstd.ZstdCompressor(options=options)
    packed = compressor.compress(b"abc" * 99) + compressor.flush()
    with pytest.raises(ApiError, match="CORRUPT"):
        decompress(Compression.ZSTD, packed, LIMIT)


def test_lz4_is_read_whatever_the_options_of_the_frame() -> None:
    data = SAMPLES["text"]
    for linked in (True, False):
        frame = lz4.frame.compress(
            data, block_linked=linked, content_checksum=True, block_checksum=True, store_size=True
        )
        assert decompress(Compression.LZ4, frame, LIMIT) == data


@every_codec
def test_data_far_larger_than_its_compressed_form_is_read(codec: Compression) -> None:
    data = b"0123456789" * 1_500_000
    packed = compress(codec, data)
    assert decompress(codec, packed + compress(codec, b"end"), len(data) + 3) == data + b"end"
    with pytest.raises(ApiError, match="CORRUPT"):
        decompress(codec, packed[:-100], 2 * len(data))


@every_codec
def test_output_stops_at_the_limit(codec: Compression) -> None:
    packed = compress(codec, bytes(3_000_000))
    for limit in (0, 1, 1_000_000, 2_999_999):
        with pytest.raises(ApiError, match=str(limit)) as caught:
            decompress(codec, packed, limit)
        assert caught.value.code is ErrorCode.MESSAGE_TOO_LARGE


@every_codec
def test_what_is_not_of_the_codec_is_corrupt(codec: Compression) -> None:
    whole = compress(codec, SAMPLES["noise"])
    damaged = whole[:20] + bytes([whole[20] ^ 0xFF]) + whole[21:-30] + bytes(30)
    for data in (b"this is plain text, not compressed at all", b"\xff" * 40, damaged):
        codes = []
        try:
            assert decompress(codec, data, LIMIT) != SAMPLES["noise"]
        except ApiError as error:
            codes.append(error.code)
        assert set(codes) <= {ErrorCode.CORRUPT_MESSAGE}


@pytest.mark.parametrize("codec", [Compression.GZIP, Compression.SNAPPY, Compression.LZ4])
def test_a_stream_cut_off_is_corrupt(codec: Compression) -> None:
    whole = compress(codec, SAMPLES["text"])
    with pytest.raises(ApiError) as caught:
        decompress(codec, whole[:-3], LIMIT)
    assert caught.value.code is ErrorCode.CORRUPT_MESSAGE
