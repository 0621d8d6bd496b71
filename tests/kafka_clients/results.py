"""What a run of Kafka's client tests gave, and which failures are known.

`runner/suites/Main.java` writes one line per test to results.tsv. verdicts.tsv lists the tests that
a cluster behind sockets cannot pass, each with a category and the reason. A category that
begins with "needs" keeps a test from being run; any other category marks a failure as known.
"""

from __future__ import annotations

import csv
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

_ABORTED = "org.opentest4j.TestAbortedException: "


@dataclass(slots=True, frozen=True)
class Result:
    """One invocation of a test."""

    class_name: str
    method: str
    display_name: str
    status: str
    duration_ms: int
    reason: str

    @property
    def test(self) -> str:
        """Class and method as verdicts.tsv names them, without the package."""
        return f"{self.class_name.rpartition('.')[2]}.{self.method}"

    @property
    def has_broker(self) -> bool:
        """Whether a broker was started: the classes have a few plain unit tests as well."""
        return (
            self.method == "*"
            or " brokers=" in self.display_name
            or "Type=Raft" in self.display_name
        )


@dataclass(slots=True, frozen=True)
class Verdict:
    category: str
    reason: str

    @property
    def skips(self) -> bool:
        return self.category.startswith("needs")


def read_results(path: Path) -> list[Result]:
    with path.open(newline="") as file:
        rows = csv.reader(file, "excel-tab", quoting=csv.QUOTE_NONE)
        results = [
            Result(class_name, method, display_name, status, int(duration_ms), reason)
            for class_name, method, display_name, status, duration_ms, reason in rows
        ]
    return [result for result in results if result.has_broker]


def read_verdicts(path: Path) -> dict[str, Verdict]:
    """The verdicts by test: "Class.method", or "Class.*" for the whole class."""
    verdicts = {}
    for line in path.read_text().splitlines():
        if line and not line.startswith("#"):
            test, category, reason = line.split("\t")
            verdicts[test] = Verdict(category, reason)
    return verdicts


class Summary:
    """Results sorted by what they mean under the verdicts."""

    def __init__(self, results: Iterable[Result], verdicts: Mapping[str, Verdict]) -> None:
        self.unexplained: list[Result] = []
        self.known: list[tuple[Result, Verdict]] = []
        self._classes: dict[str, Counter[str]] = defaultdict(Counter)
        for result in results:
            class_name = result.class_name.rpartition(".")[2]
            verdict = verdicts.get(result.test) or verdicts.get(f"{class_name}.*")
            outcome = result.status
            if outcome == "SKIPPED":
                outcome = result.reason.removeprefix(_ABORTED).partition(":")[0]
            elif outcome == "FAILED" and verdict is not None and verdict.skips:
                outcome = verdict.category
            elif outcome == "FAILED" and verdict is not None:
                self.known.append((result, verdict))
            elif outcome == "FAILED":
                self.unexplained.append(result)
            self._classes[class_name][outcome] += 1

    @property
    def run(self) -> int:
        return sum(row["PASSED"] + row["FAILED"] for row in self._classes.values())

    def table(self) -> str:
        """A Markdown table with a row per test class."""
        rows = ["| class | run | passed | failed | skipped |", "|---|---:|---:|---:|---|"]
        rows += [_row(name, self._classes[name]) for name in sorted(self._classes)]
        rows.append(_row("**all**", sum(self._classes.values(), Counter())))
        return "\n".join(rows)

    def failures(self) -> str:
        """A line per failure, unexplained ones last, where a reader of the output looks first."""
        lines = [
            f"known failure: {result.display_name} ({result.test}): {verdict.category}: "
            f"{verdict.reason}"
            for result, verdict in self.known
        ]
        lines += [
            f"FAILED {result.test} {result.display_name}: {result.reason[:400]}"
            for result in self.unexplained
        ]
        return "\n".join(lines)


def _row(name: str, counts: Counter[str]) -> str:
    passed, failed = counts["PASSED"], counts["FAILED"]
    skipped = ", ".join(
        f"{count} {outcome}"
        for outcome, count in counts.most_common()
        if outcome not in ("PASSED", "FAILED")
    )
    return f"| {name} | {passed + failed} | {passed} | {failed} | {skipped} |"
