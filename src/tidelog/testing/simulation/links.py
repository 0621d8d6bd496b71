"""Which hosts cannot reach each other, and between which everything takes longer.

A blocked link loses nothing: streams keep what is sent, as TCP does, and deliver it when the link
works again, unless an end has given up by then. Links have a direction.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tidelog.testing.simulation.network import SimulatedTransport

Link = tuple[str, str]
"""The host that sends and the host that receives."""


class Links:
    """The state of the links between hosts; those that are not named are good."""

    def __init__(self) -> None:
        self._blocked: set[Link] = set()
        self._extra_us: dict[Link, int] = {}
        self.held: dict[int, SimulatedTransport] = {}
        """Streams with something that a blocked link keeps, by descriptor."""
        self.when_healed: list[Callable[[], None]] = []

    def is_blocked(self, source: str, target: str) -> bool:
        return (source, target) in self._blocked

    def extra_us(self, source: str, target: str) -> int:
        """By how much a link is slower than others."""
        return self._extra_us.get((source, target), 0)

    def block(self, links: Iterable[Link]) -> None:
        self._blocked.update(links)

    def slow_down(self, links: Iterable[Link], extra_us: int) -> None:
        for link in links:
            self._extra_us[link] = extra_us

    def heal(self, links: Iterable[Link] | None = None) -> None:
        """These links, or all, are good again: what they kept arrives."""
        if links is None:
            self._blocked.clear()
            self._extra_us.clear()
        else:
            for link in links:
                self._blocked.discard(link)
                self._extra_us.pop(link, None)
        for fd, transport in list(self.held.items()):
            if not transport.is_blocked:
                del self.held[fd]
                transport.release()
        waiting, self.when_healed = self.when_healed, []
        for callback in waiting:
            callback()
