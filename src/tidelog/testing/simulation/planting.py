"""How a deliberate mistake is put into the real code, and taken out again."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

PlantedBug = Callable[[], AbstractContextManager[None]]


class Plantation(dict[str, PlantedBug]):
    """Planted bugs by name; `plant` is the decorator of each."""

    def plant(self, bug: Callable[[], Iterator[None]]) -> PlantedBug:
        made = contextmanager(bug)
        self[bug.__name__.replace("_", "-")] = made
        return made

    @contextmanager
    def planted(self, name: str | None) -> Iterator[None]:
        """The code with this bug; None is the code as it is."""
        if name is None:
            yield
        else:
            with self[name]():
                yield


@contextmanager
def replaced(owner: Any, name: str, replacement: object) -> Iterator[None]:
    original = owner.__dict__[name]
    setattr(owner, name, replacement)
    try:
        yield
    finally:
        setattr(owner, name, original)
