"""What may happen to a file while nobody looks."""

from __future__ import annotations

import random
from pathlib import Path


def damage(path: Path, rng: random.Random, *, start: int = 0) -> str:
    """Damages a file from byte `start` on, or deletes it; returns in a word what was done."""
    content = bytearray(path.read_bytes())
    size_bytes = len(content)
    kind = rng.choice(("flip", "flip", "flip", "cut", "zero", "noise", "longer", "empty", "delete"))
    if kind == "delete" and not start:
        path.unlink()
        return "deleted"
    if kind == "longer" or size_bytes <= start:
        content += rng.randbytes(rng.choice((1, 4, 700)))
    elif kind == "empty":
        del content[start:]
    elif kind == "cut":
        del content[rng.randrange(start, size_bytes) :]
    elif kind == "flip":
        for _ in range(rng.choice((1, 1, 3))):
            content[rng.randrange(start, size_bytes)] ^= 1 << rng.randrange(8)
    else:
        at = rng.randrange(start, size_bytes)
        piece = min(size_bytes - at, rng.choice((1, 8, 512)))
        content[at : at + piece] = bytes(piece) if kind == "zero" else rng.randbytes(piece)
    path.write_bytes(content)
    return kind
