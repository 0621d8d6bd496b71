"""The machine's page cache, brought to the same state before every measurement.

Two things carry over from one measurement to the next and have nothing to do with either broker.
Dirty pages of an earlier one are written back while the next one runs. And in a virtual machine
memory that was never used, or was given back to the host, costs a fault in the host for each page:
a bare `write` to a new file then takes 3 s of CPU a GB instead of 0.25.
"""

import os
import tempfile
from pathlib import Path

_CHUNK = bytes(1 << 20)
_SPARE_BYTES = 128 << 20


def settle(folder: Path, next_bytes: int) -> None:
    """Wait until nothing is dirty, and have memory at hand for `next_bytes` of new pages.

    A file is written and removed, and its pages are the next that the kernel hands out. It has
    twice the size, because the client's queue takes as much as the broker's files.
    """
    with tempfile.TemporaryFile(dir=folder) as file:
        for _ in range(0, 2 * next_bytes + _SPARE_BYTES, len(_CHUNK)):
            os.write(file.fileno(), _CHUNK)
        os.sync()
