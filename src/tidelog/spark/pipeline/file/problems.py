"""What is wrong with a pipeline file, each with the line to look at."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from difflib import get_close_matches
from enum import StrEnum
from pathlib import Path


class Severity(StrEnum):
    ERROR = "error"
    WARNING = "warning"


@dataclass(frozen=True, slots=True, order=True)
class Problem:
    """One finding; `str()` is the line that editors and compilers' users know."""

    file: str
    line: int
    severity: Severity
    message: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.severity}: {self.message}"


class Problems:
    """The findings so far; a finding that is there already is not repeated."""

    def __init__(self) -> None:
        self._found: list[Problem] = []

    def __iter__(self) -> Iterator[Problem]:
        return iter(sorted(self._found))

    def error(self, file: Path, line: int, message: str) -> None:
        self._add(Problem(str(file), line, Severity.ERROR, message))

    def warning(self, file: Path, line: int, message: str) -> None:
        self._add(Problem(str(file), line, Severity.WARNING, message))

    @property
    def has_errors(self) -> bool:
        return any(problem.severity is Severity.ERROR for problem in self._found)

    def _add(self, problem: Problem) -> None:
        if problem not in self._found:
            self._found.append(problem)


def near(name: str, known: Iterable[str]) -> str:
    """` Did you mean 'x'?` for the known name that looks most like it, or nothing."""
    choices = list(known)
    by_lower = {choice.lower(): choice for choice in choices}
    close = get_close_matches(name.lower(), by_lower, n=1, cutoff=0.6)
    return f" Did you mean '{by_lower[close[0]]}'?" if close else ""
