"""By what the rows of a part are known again: not which they are, but how many and how large.

A micro-batch that is split among its tasks in another way has parts of other shapes, but for a
coincidence in all of them.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Shape:
    """The rows of a part, and the bytes of their keys and values."""

    rows: int
    size_bytes: int
