"""Sizes as people write them: 128MB, 1.5 GiB."""

import re

from tidelog.spark.errors import OptionError

_UNITS = {
    "": 1,
    "k": 1 << 10,
    "m": 1 << 20,
    "g": 1 << 30,
    "t": 1 << 40,
}
_SIZE = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([kmgtKMGT]?)(?:i?[bB])?\s*")


def parse_size(text: str, *, option: str) -> int:
    """A size in bytes; KB and KiB are both 1024 bytes."""
    found = _SIZE.fullmatch(text)
    size_bytes = int(float(found[1]) * _UNITS[found[2].lower()]) if found else 0
    if size_bytes <= 0:
        raise OptionError(f"{option}: {text!r} is not a size such as 128MB")
    return size_bytes


def size_text(size_bytes: float) -> str:
    """A size for people, with one digit after the point where it tells something."""
    for unit in ("B", "KB", "MB", "GB"):
        if size_bytes < 1024:
            return f"{size_bytes:.0f} {unit}" if unit == "B" else f"{size_bytes:.1f} {unit}"
        size_bytes /= 1024
    return f"{size_bytes:.1f} TB"
