"""Lines of an input that may pause: a file, a pipe, a terminal."""

import os
import select
from collections.abc import Callable, Iterator

from tidelog.errors import TidelogError

_READ_BYTES = 256 * 1024
# What a broker takes in one request at most, unless told otherwise.
LINE_BYTES_MAX = 100 * 1024 * 1024


class LineTooLong(TidelogError):
    """A line has no end within what a record may have."""


def read_lines(descriptor: int, on_pause: Callable[[], None]) -> Iterator[bytes]:
    """The lines of an input, without their ends.

    `on_pause` is called each time when all lines so far were given out and there is nothing to read
    for the moment.
    """
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    begun: list[bytes] = []
    begun_bytes = 0
    while True:
        if not poll.poll(0):
            on_pause()
            poll.poll()
        piece = os.read(descriptor, _READ_BYTES)
        if not piece:
            break
        first, *others = piece.split(b"\n")
        begun.append(first)
        begun_bytes += len(first)
        if begun_bytes > LINE_BYTES_MAX:
            raise LineTooLong(f"a line of the input has more than {LINE_BYTES_MAX} bytes")
        if others:
            yield b"".join(begun)
            yield from others[:-1]
            begun, begun_bytes = [others[-1]], len(others[-1])
    if begun_bytes:
        yield b"".join(begun)
