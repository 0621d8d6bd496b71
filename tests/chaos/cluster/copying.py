"""The transactional copier as a process that is killed, and what its diary says it did."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from tidelog.protocol.topic_partition import TopicPartition as Place
from tidelog.testing.history import Operation, Outcome, Polled, Send


class CopierProcess:
    """`tests.transactions.copier`: copies a topic exactly once, and aborts every fifth time."""

    def __init__(
        self, bootstrap: str, source: str, target: str, partitions: int, folder: Path
    ) -> None:
        self._arguments = [bootstrap, source, target, str(partitions), str(folder / "diary")]
        self._target = target
        self._diary = folder / "diary"
        self._output = folder / "copier.log"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        with self._output.open("ab") as output:
            self._process = subprocess.Popen(
                [
                    sys.executable,
                    "-X",
                    "faulthandler",
                    "-m",
                    "tests.transactions.copier",
                    *self._arguments,
                ],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
            )

    def kill(self) -> None:
        """kill -9; what it was at remains open until another takes its place or time is up."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def abort(self) -> None:
        """End it with its threads' stacks in its log: it does not go on."""
        if self._process is not None:
            self._process.send_signal(signal.SIGABRT)
            self._process.wait()

    def replace(self) -> None:
        self.kill()
        self.start()

    def operations(self) -> list[Operation]:
        """One for each transaction. Those without an end were cut short: who knows."""
        begun: dict[str, Operation] = {}
        for line in self._lines():
            entry = json.loads(line)
            attempt, outcome = entry["attempt"], Outcome(entry["outcome"])
            if attempt in begun:
                begun[attempt].outcome = outcome
            else:
                sends = [Send(Place(self._target, p), value) for p, value in entry["copies"]]
                begun[attempt] = Operation(f"copier.{attempt.split('.')[0]}", outcome, sends)
        return list(begun.values())

    def _lines(self) -> Iterator[str]:
        if self._diary.exists():
            for line in self._diary.read_text().splitlines(keepends=True):
                if line.endswith("}\n"):
                    yield line


def copy_problems(
    source: list[Polled], target: list[Polled], transactions: list[Operation]
) -> list[str]:
    """What is not exactly once: `source` and `target` are all committed records of two topics."""
    problems = []
    copies = Counter(str(record.value).rpartition("@")[0] for record in target)
    # A record that librdkafka has sent again is in the source twice, and so are its copies.
    originals = Counter(str(record.value) for record in source)
    missing = sorted(originals.keys() - copies.keys())
    if missing:
        problems.append(f"{len(missing)} records were not copied, among them {missing[:3]}")
    twice = sorted(value for value, count in copies.items() if count > originals[value] > 0)
    if twice:
        problems.append(f"{len(twice)} records were copied twice, among them {twice[:3]}")
    unknown = sorted(copies.keys() - originals)
    if unknown:
        problems.append(f"{len(unknown)} copies have no original, among them {unknown[:3]}")
    found = {record.value for record in target}
    for transaction in transactions:
        present = sum(send.value in found for send in transaction.sends)
        if 0 < present < len(transaction.sends):
            problems.append(
                f"{transaction.process}: {present} of {len(transaction.sends)} records of one "
                f"transaction are there ({transaction.sends[0].value!r} and others)"
            )
    return problems
