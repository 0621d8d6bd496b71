"""Topic and directory ids: sixteen raw bytes inside, Kafka's base64url text outside."""

import base64
import binascii
from random import Random

ZERO_UUID = bytes(16)
# Kafka keeps id 1 for the metadata topic, whose id is never drawn at random.
METADATA_TOPIC_ID = bytes(15) + b"\x01"


def random_uuid(random: Random) -> bytes:
    """A new random id whose text never starts with '-', which tools take for a flag."""
    while True:
        raw = bytearray(random.randbytes(16))
        raw[6] = (raw[6] & 0x0F) | 0x40
        raw[8] = (raw[8] & 0x3F) | 0x80
        if raw[0] >> 2 != 62:
            return bytes(raw)


def format_uuid(uuid: bytes) -> str:
    """The 22 characters that Kafka's tools print and accept."""
    return base64.urlsafe_b64encode(uuid).rstrip(b"=").decode()


def parse_uuid(text: str) -> bytes:
    """The id of Kafka's text form; ValueError for anything else."""
    try:
        uuid = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
    except (binascii.Error, ValueError) as error:
        raise ValueError(f"{text!r} is not a base64url id: {error}") from None
    if len(uuid) != 16:
        raise ValueError(f"{text!r} is an id of {len(uuid)} bytes, not of 16")
    return uuid
