"""Latencies of a run: collected cheaply, told as percentiles."""

from dataclasses import dataclass, field

_PERCENTILES = (("p50", 0.50), ("p90", 0.90), ("p99", 0.99), ("p99_9", 0.999))


@dataclass(slots=True)
class Latencies:
    """Samples in seconds; every value that is reported is in milliseconds."""

    samples_s: list[float] = field(default_factory=list)

    def add(self, seconds: float) -> None:
        self.samples_s.append(seconds)

    def summary_ms(self) -> dict[str, float]:
        """min, percentiles and max; empty when nothing was measured."""
        if not self.samples_s:
            return {}
        ordered = sorted(self.samples_s)
        last = len(ordered) - 1
        summary = {"min": ordered[0]}
        for name, share in _PERCENTILES:
            summary[name] = ordered[min(last, int(len(ordered) * share))]
        summary["max"] = ordered[-1]
        return {name: round(seconds * 1000, 3) for name, seconds in summary.items()}
