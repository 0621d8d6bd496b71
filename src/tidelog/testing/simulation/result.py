"""What became of one seed."""

from __future__ import annotations

from dataclasses import dataclass, field

from tidelog.testing.simulation.fault_events import FaultEvent


@dataclass(slots=True)
class Result:
    """What became of one seed."""

    seed: int
    options: str
    failures: list[str]
    trace_digest: str
    trace: list[str]
    simulated_s: float
    events: int
    counts: dict[str, int]
    """What happened how often."""
    faults: list[FaultEvent] = field(default_factory=list)
    """Those that were arranged, where they can be left out."""

    @property
    def is_good(self) -> bool:
        return not self.failures
