"""What all parts of the demo share."""

from dataclasses import dataclass, field
from pathlib import Path

from rich.console import Console

from examples.shop.checking import Check
from examples.shop.deadline import Deadline
from examples.shop.events import Day, Truth


@dataclass
class Demo:
    """One run: where it is, what it sends, how long it may take, and what it found."""

    folder: Path
    day: Day
    truth: Truth
    stream_s: float
    deadline: Deadline
    console: Console
    checks: list[Check] = field(default_factory=list)

    def say(self, text: str) -> None:
        self.console.print(f"[dim]{self.deadline.elapsed_s:4.0f} s[/]  {text}", highlight=False)

    def check(self, *checks: Check) -> None:
        self.checks += checks
