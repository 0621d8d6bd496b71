"""Chaos with real processes: rounds of faults on a cluster in network namespaces of its own.

    python -m tests.chaos.cluster.run --rounds 20 --nodes 3 --seed 1

Each round prints its planned faults and, at the end, one line with what it has met. A round that
finds something keeps the nodes' data, what they printed, and the clients' history, and prints the
command that repeats it.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from tests.chaos.cluster import namespaces
from tests.chaos.cluster.chaos_cluster import ChaosCluster, NotWellError
from tests.chaos.cluster.clocks import build_library, compiler
from tests.chaos.cluster.disks import make_disks
from tests.chaos.cluster.faults import LANES, Kind
from tests.chaos.cluster.hosts import Network
from tests.chaos.cluster.rounds import Round, RoundPlan, RoundResult
from tests.chaos.cluster.servers import ClusterPlan, Kafka, Server, Tidelog

_MODULE = "tests.chaos.cluster.run"


def main(arguments: Sequence[str]) -> int:
    options = _options(arguments)
    if not namespaces.is_inside():
        problem = namespaces.missing()
        if problem is not None:
            _say(problem)
            return 2
        return namespaces.enter(_MODULE, arguments)
    return Run(options, list(arguments)).run()


def _options(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog=f"python -m {_MODULE}")
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--minutes", type=float, help="Rounds until this time is up.")
    parser.add_argument("--nodes", type=int, default=3)
    parser.add_argument("--voters", type=int, default=3)
    parser.add_argument("--seed", type=int, default=1, help="Of the first round; the next adds 1.")
    parser.add_argument("--against", choices=("tidelog", "kafka"), default="tidelog")
    parser.add_argument("--span", type=float, default=12.0, help="Seconds of faults in a round.")
    parser.add_argument("--fresh", type=int, default=10, help="Rounds with the same cluster.")
    parser.add_argument("--faults", help=f"Of these kinds only: {','.join(Kind)}.")
    parser.add_argument("--acks", choices=("all", "1"), default="all")
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE")
    parser.add_argument(
        "--upgrade-from",
        type=Path,
        metavar="CHECKOUT",
        help="Each cluster begins as this source tree, and becomes this one in its first round.",
    )
    parser.add_argument("--keep", type=Path, default=Path(tempfile.gettempdir(), "tidelog-chaos"))
    parser.add_argument("--verbose", action="store_true", help="Tell of each fault as it begins.")
    return parser.parse_args(arguments)


class Run:
    """Rounds on one network, with a fresh cluster every few rounds."""

    def __init__(self, options: argparse.Namespace, arguments: list[str]) -> None:
        self._options = options
        self._arguments = arguments
        settings = dict(each.split("=", 1) for each in options.set)
        self._plan = ClusterPlan(options.nodes, min(options.voters, options.nodes), settings)
        self._folder = namespaces.folder()
        self._network = Network(options.nodes)
        self._kinds, absent = _kinds(options)
        for sentence in absent:
            _say(sentence)
        self._disks = make_disks(self._folder, self._plan.node_ids)
        self._clock_library = build_library(self._folder) if Kind.CLOCK in self._kinds else None
        self._results: list[RoundResult] = []

    def run(self) -> int:
        deadline = time.monotonic() + self._options.minutes * 60 if self._options.minutes else None
        count = sys.maxsize if deadline else self._options.rounds
        cluster: ChaosCluster | None = None
        try:
            for number in range(count):
                if deadline is not None and time.monotonic() > deadline:
                    break
                is_first = number % self._options.fresh == 0
                if cluster is None or is_first:
                    cluster = self._fresh(cluster, number)
                result = self._round(cluster, number, is_first=is_first)
                self._results.append(result)
                if result.problems:
                    self._keep(cluster, result)
                    cluster.close()
                    cluster = None
        finally:
            if cluster is not None:
                cluster.close()
        return self._sum_up()

    def _fresh(self, old: ChaosCluster | None, number: int) -> ChaosCluster:
        if old is not None:
            old.close()
        self._network.heal()
        for disk in self._disks.values():
            disk.empty()
        server, upgraded = self._servers()
        cluster = ChaosCluster(
            self._plan,
            server,
            self._network,
            self._disks,
            self._folder / f"nodes-{number}",
            clock_library=self._clock_library,
            upgraded=upgraded,
        )
        cluster.start()
        return cluster

    def _servers(self) -> tuple[Server, Server | None]:
        if self._options.against == "kafka":
            from benchmarks.servers import kafka_libraries

            libraries = kafka_libraries()
            if libraries is None:
                raise NotWellError("Apache Kafka needs java, and mvn to fetch it.")
            return Kafka(self._plan, libraries), None
        new = Tidelog(self._plan)
        if self._options.upgrade_from is None:
            return new, None
        return Tidelog(self._plan, self._options.upgrade_from.resolve() / "src"), new

    def _round(self, cluster: ChaosCluster, number: int, *, is_first: bool) -> RoundResult:
        kinds = self._kinds
        if self._options.upgrade_from is not None and is_first:
            kinds |= {Kind.ROLLING_UPGRADE}
        plan = RoundPlan.drawn(
            self._options.seed + number,
            self._options.span,
            self._plan.node_ids,
            kinds,
            self._options.acks,
        )
        _say(f"round {number} planned: {'; '.join(map(str, plan.faults))}")
        folder = self._folder / f"round-{number}"
        folder.mkdir()
        say = _say if self._options.verbose else _ignore
        result = Round(cluster, plan, number, folder, say).run()
        _say(f"round {number} {result.line}")
        for problem in result.problems[:10]:
            _say(f"    {problem}")
        for note in [*result.endings, *result.fatal_errors][:10]:
            _say(f"    note: {note}")
        return result

    def _keep(self, cluster: ChaosCluster, result: RoundResult) -> None:
        kept = self._options.keep / f"{self._options.against}-{result.seed}-{int(time.time())}"
        kept.mkdir(parents=True)
        for node in cluster.nodes.values():
            node.kill()
        cluster.keep(kept / "data")
        shutil.copytree(
            self._folder,
            kept / "run",
            ignore=lambda folder, names: [n for n in names if n.startswith(("disk-", "images"))],
        )
        (kept / "problems.txt").write_text("\n".join([*result.problems, *result.endings, ""]))
        with (kept / "history.jsonl").open("w") as file:
            for operation in result.history:
                file.write(json.dumps(asdict(operation), default=str) + "\n")
        _say(f"    kept in {kept}")
        _say(f"    repeat it: python -m {_MODULE} {' '.join(self._repeating(result.seed))}")

    def _repeating(self, seed: int) -> list[str]:
        options = self._options
        repeated = ["--rounds", "1", "--seed", str(seed), "--nodes", str(options.nodes)]
        repeated += ["--voters", str(options.voters), "--against", options.against]
        repeated += ["--span", str(options.span), "--acks", options.acks]
        repeated += [each for value in options.set for each in ("--set", value)]
        if options.faults:
            repeated += ["--faults", options.faults]
        if options.upgrade_from:
            repeated += ["--upgrade-from", str(options.upgrade_from)]
        return repeated

    def _sum_up(self) -> int:
        results = self._results
        met: Counter[Kind] = sum((each.met for each in results), Counter())
        failed = [each.seed for each in results if each.problems]
        elections = sum(each.elections for each in results)
        _say(
            f"{len(results)} rounds, {len(results) - len(failed)} clean; "
            f"{sum(each.acknowledged for each in results)} acknowledged, "
            f"{sum(each.transactions for each in results)} transactions, "
            f"{elections} elections; faults: "
            + " ".join(f"{kind} {count}" for kind, count in sorted(met.items()))
        )
        if failed:
            _say(f"failed seeds: {failed}")
        if not results:
            _say("no round was run")
        elif elections == 0 and met.keys() & set(LANES["process"] + LANES["network"]):
            _say("vacuous: no leader was ever elected anew")
            return 1
        return 1 if failed or not results else 0


def _kinds(options: argparse.Namespace) -> tuple[frozenset[Kind], list[str]]:
    """The kinds of faults that can be had, and a sentence for each that cannot."""
    if options.faults:
        kinds = {Kind(name) for name in options.faults.split(",")}
    else:
        kinds = {kind for lane in LANES.values() for kind in lane}
        if options.against == "kafka":
            # Kafka syncs nothing before it acknowledges, and ends when a disk is full.
            kinds -= {Kind.POWER_CUT, Kind.POWER_CUT_ALL, Kind.FULL_DISK}
    absent = []
    power_cuts = {Kind.POWER_CUT, Kind.POWER_CUT_ALL}
    if kinds & power_cuts and not namespaces.has_loop_devices():
        kinds -= power_cuts
        absent.append("No power cuts: they need root, loop devices and mkfs.ext4 (e2fsprogs).")
    if Kind.CLOCK in kinds and compiler() is None:
        kinds.discard(Kind.CLOCK)
        absent.append("No clock jumps: they need a C compiler (the package gcc).")
    return frozenset(kinds), absent


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def _ignore(text: str) -> None:
    pass


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
