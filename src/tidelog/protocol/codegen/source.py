"""Source text in the making: indented lines, fresh names, and the objects the text refers to."""

import struct
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import Any


@lru_cache(maxsize=512)
def array_struct(code: str, count: int) -> struct.Struct:
    """The layout of `count` numbers in a row. Callers bound `count` by the bytes at hand."""
    return struct.Struct(f">{count}{code}")


# Arrays of numbers up to this length (replicas, partitions) have their layouts at hand.
SHORT_ARRAY = 16


def short_array_structs(code: str, prefix: str = "") -> tuple[struct.Struct, ...]:
    """The layouts of 0 to SHORT_ARRAY numbers in a row, behind a number of the type `prefix`."""
    return tuple(struct.Struct(f">{prefix}{count}{code}") for count in range(SHORT_ARRAY + 1))


class Source:
    """One function being written."""

    def __init__(self, name: str, signature: str) -> None:
        self.name = name
        self.scope: dict[str, Any] = {}
        self._lines = [f"def codec({signature}):"]
        self._depth = 1
        self._names = 0

    def line(self, text: str) -> None:
        self._lines.append("    " * self._depth + text)

    @contextmanager
    def block(self, head: str) -> Iterator[None]:
        self.line(head)
        self._depth += 1
        yield
        self._depth -= 1

    def fresh(self, stem: str) -> str:
        """A local name not used yet."""
        self._names += 1
        return f"{stem}{self._names}"

    def refer(self, stem: str, value: object) -> str:
        """A global name of the function for `value`."""
        name = self.fresh(f"_{stem}_")
        self.scope[name] = value
        return name

    def text(self) -> str:
        return "\n".join(self._lines) + "\n"

    def compile(self) -> Any:
        exec(compile(self.text(), f"<{self.name}>", "exec"), self.scope)
        return self.scope["codec"]
