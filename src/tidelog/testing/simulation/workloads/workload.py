"""What the scenario asks of a workload: clients of one kind, on topics of their own."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from tidelog.testing.simulation.options import Options
from tidelog.testing.simulation.workloads.workspace import Workspace


class Workload(Protocol):
    """Clients that work while there are faults, and what must hold of what they saw."""

    workspace: Workspace

    def start(self) -> None:
        """Make the clients and begin their tasks."""
        ...

    def wind_up(self) -> None:
        """The faults are over and all tasks have ended: begin those that look at what is left."""
        ...

    def failures(self) -> Iterable[str]:
        """What is wrong, when those have ended too."""
        ...


class DrawnWorkload(Workload, Protocol):
    """A workload that the seed's options decide about."""

    def __init__(self, workspace: Workspace, options: Options) -> None: ...

    @staticmethod
    def is_drawn(options: Options) -> bool:
        """Whether the seed has it."""
        ...
