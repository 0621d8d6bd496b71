"""One round: clients at work while a cluster meets faults, then a check of all they were told."""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from confluent_kafka import Consumer, KafkaException, TopicPartition

from tests.chaos.cluster.chaos_cluster import ChaosCluster, NotWellError
from tests.chaos.cluster.compaction import compaction_problems
from tests.chaos.cluster.copying import CopierProcess, copy_problems
from tests.chaos.cluster.faults import Fault, Kind, plan_faults
from tests.chaos.cluster.injection import Injection
from tests.chaos.cluster.resends import told_apart
from tests.chaos.cluster.workloads import (
    MESSAGE_TIMEOUT_S,
    STURDY,
    GroupReader,
    SteadyProducer,
    TailReader,
    Workload,
    read_to_end,
)
from tidelog.errors import TidelogError
from tidelog.protocol.topic_partition import TopicPartition as Place
from tidelog.testing.history import AnomalyKind, Operation, Outcome, Polled, check_history

WELL_TIMEOUT_S = 90.0
_CATCH_UP_TIMEOUT_S = 60.0
_COPIERS_MAX = 2
_STUCK_S = 30.0
_SENT_PARTITIONS = 4
_COMPACTED_PARTITIONS = 2
_KEYS = 40
_IN_FLIGHT = (1, 5)
"""Of each producer, how many requests it has on the way at once."""
_RATE = 100
_COMPACTED_RATE = 200
_PROTOCOLS = ("classic", "consumer")
_MEMBERS = 2
_COMPACTED = {
    "cleanup.policy": "compact",
    "segment.bytes": "1048576",
    "segment.ms": "1000",
    "min.cleanable.dirty.ratio": "0.01",
}
_ACKNOWLEDGED_MIN = 200


@dataclass(frozen=True, slots=True)
class RoundPlan:
    """What a round is made of; the same for the same seed."""

    seed: int
    span_s: float
    faults: list[Fault]
    acks: str = "all"

    @classmethod
    def drawn(
        cls, seed: int, span_s: float, nodes: Sequence[int], kinds: frozenset[Kind], acks: str
    ) -> RoundPlan:
        rng = random.Random(seed)
        return cls(seed, span_s, plan_faults(rng, nodes, span_s, kinds), acks)


@dataclass(slots=True)
class RoundResult:
    """What a round has met and found."""

    seed: int
    sent: int = 0
    acknowledged: int = 0
    polled: int = 0
    transactions: int = 0
    compacted: int = 0
    resends: int = 0
    stuck_copiers: int = 0
    fatal_errors: list[str] = field(default_factory=list)
    elections: int = 0
    well_after_s: float | None = None
    met: Counter[Kind] = field(default_factory=Counter)
    endings: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    history: list[Operation] = field(default_factory=list)

    @property
    def line(self) -> str:
        well = "never" if self.well_after_s is None else f"{self.well_after_s:.1f} s"
        faults = " ".join(f"{kind} {count}" for kind, count in sorted(self.met.items()))
        notes = [f"{len(self.endings)} ended by themselves"] if self.endings else []
        notes += [f"{self.resends} resent by librdkafka"] if self.resends else []
        notes += [f"{self.stuck_copiers} copiers stuck"] if self.stuck_copiers else []
        notes += [f"{len(self.fatal_errors)} fatal"] if self.fatal_errors else []
        verdict = "ok" if not self.problems else f"{len(self.problems)} PROBLEMS"
        return (
            f"seed {self.seed}: {self.acknowledged} of {self.sent} acknowledged, "
            f"{self.polled} polled, {self.transactions} transactions, "
            f"{self.compacted} survived compaction, {self.elections} elections, "
            f"faults: {faults or 'none'}, well after {well}, "
            + "".join(f"{note}, " for note in notes)
            + verdict
        )


class Round:
    """The clients of one round on topics of their own, which are named after `number`."""

    def __init__(
        self,
        cluster: ChaosCluster,
        plan: RoundPlan,
        number: int,
        folder: Path,
        say: Callable[[str], None],
    ) -> None:
        self._cluster = cluster
        self._plan = plan
        self._say = say
        self._bootstrap = cluster.plan.bootstrap
        self._sent, self._copied, self._compacted = (
            f"{name}-{number}" for name in ("sent", "copied", "compacted")
        )
        self._sent_places = [Place(self._sent, p) for p in range(_SENT_PARTITIONS)]
        self._copied_places = [Place(self._copied, p) for p in range(_SENT_PARTITIONS)]
        self._compacted_places = [Place(self._compacted, p) for p in range(_COMPACTED_PARTITIONS)]
        self._producers = [
            SteadyProducer(
                f"producer-{index}",
                self._bootstrap,
                self._sent,
                _SENT_PARTITIONS,
                rate=_RATE,
                acks=plan.acks,
                in_flight=in_flight,
                log=folder / f"producer-{index}.log",
            )
            for index, in_flight in enumerate(_IN_FLIGHT)
        ]
        self._writer = SteadyProducer(
            "writer",
            self._bootstrap,
            self._compacted,
            _COMPACTED_PARTITIONS,
            rate=_COMPACTED_RATE,
            keys=_KEYS,
            acks=plan.acks,
            log=folder / "writer.log",
        )
        self._tail = TailReader("tail", self._bootstrap, [*self._sent_places, *self._copied_places])
        self._groups = {
            protocol: [
                GroupReader(
                    f"{protocol}-{index}",
                    self._bootstrap,
                    self._sent,
                    f"{protocol}-{number}",
                    protocol,
                )
                for index in range(_MEMBERS)
            ]
            for protocol in _PROTOCOLS
        }
        self._copier = CopierProcess(
            self._bootstrap, self._sent, self._copied, _SENT_PARTITIONS, folder
        )
        self.result = RoundResult(plan.seed)

    def run(self) -> RoundResult:
        """Never raises for what the cluster does: that is among the problems of the result."""
        result = self.result
        try:
            self._create_topics()
            before = self._cluster.epochs()
            try:
                self._under_faults()
                self._until_well()
                after = self._cluster.epochs()
                result.elections = sum(
                    after[place] - before[place] for place in before if place in after
                )
                self._check()
            finally:
                self._stop_all()
            if not result.problems:
                self._delete_topics()
        except (NotWellError, TidelogError, TimeoutError, RuntimeError, KafkaException) as error:
            result.problems.append(str(error))
            self._check_what_was_read()
        result.problems += [problem for each in self._workloads for problem in each.problems]
        return result

    @property
    def _workloads(self) -> list[Workload]:
        return [*self._producers, self._writer, self._tail, *self._members]

    @property
    def _members(self) -> list[GroupReader]:
        return [member for group in self._groups.values() for member in group]

    def _create_topics(self) -> None:
        with self._cluster.topics() as topics:
            topics.create(
                [self._sent, self._copied], partitions=_SENT_PARTITIONS, replication_factor=3
            )
            topics.create(
                [self._compacted],
                partitions=_COMPACTED_PARTITIONS,
                replication_factor=3,
                settings=_COMPACTED,
            )

    def _delete_topics(self) -> None:
        with self._cluster.topics() as topics:
            topics.delete([self._sent, self._copied, self._compacted])

    def _under_faults(self) -> None:
        for workload in self._workloads:
            workload.start()
        self._copier.start()
        self._await(lambda: self._acknowledged() > 0, "no record is acknowledged at the beginning")
        injection = Injection(
            self._cluster, self._plan.faults, kill_copier=self._copier.replace, say=self._say
        )
        injection.run(self._plan.span_s)
        self.result.met = injection.met
        self.result.problems += injection.errors

    def _until_well(self) -> None:
        """Heal everything; then the cluster gets well and every client goes on."""
        self.result.endings = self._cluster.heal()
        self.result.well_after_s = self._cluster.await_health(WELL_TIMEOUT_S)
        for producer in [*self._producers, self._writer]:
            before = producer.acknowledged
            self._await(
                lambda producer=producer, before=before: producer.acknowledged > before,  # type: ignore[misc]
                f"{producer.name} gets nothing acknowledged by the healthy cluster",
            )
            producer.begin_stop()
        for producer in [*self._producers, self._writer]:
            producer.await_stop(MESSAGE_TIMEOUT_S + 10)

    def _check(self) -> None:
        result = self.result
        sent = read_to_end(self._bootstrap, "final", self._sent_places, _CATCH_UP_TIMEOUT_S)
        ends = dict.fromkeys(self._sent_places, -1)
        everything = _records(sent)
        for record in everything:
            ends[record.topic_partition] = max(ends[record.topic_partition], record.offset)
        for protocol, members in self._groups.items():
            try:
                self._await_committed(members[0].group, ends, f"the {protocol} group")
            except NotWellError:
                self.result.problems += [
                    f"{each.name}: life {each.lives}, {each.polled} polled, {list(each.moves)}"
                    for each in members
                ]
                raise
        self._await_copies(ends)
        self._stop_all()
        copied = read_to_end(self._bootstrap, "final", self._copied_places, _CATCH_UP_TIMEOUT_S)
        compacted = read_to_end(
            self._bootstrap, "final-compacted", self._compacted_places, _CATCH_UP_TIMEOUT_S
        )
        transactions = self._copier.operations()
        result.history = [
            *(operation for producer in self._producers for operation in producer.operations),
            *self._tail.operations,
            *(
                each
                for group in self._groups.values()
                for member in group
                for each in member.operations
            ),
            *transactions,
            *sent,
            *copied,
        ]
        resending = [f"{each.name}-" for each in self._producers if each.epoch_bumps]
        history, result.resends = told_apart(result.history, resending)
        report = check_history(history)
        result.problems += map(str, report.anomalies)
        result.problems += copy_problems(everything, _records(copied), transactions)
        result.problems += compaction_problems(self._writer.operations, _records(compacted), _KEYS)
        for protocol, members in self._groups.items():
            result.problems += self._group_problems(protocol, members, everything)
        result.sent = report.sent + len(self._writer.operations)
        result.acknowledged = report.acknowledged + self._writer.acknowledged
        result.polled = report.polled
        result.transactions = sum(each.outcome is Outcome.OK for each in transactions)
        result.compacted = len(_records(compacted))
        result.fatal_errors = [
            error for each in [*self._producers, self._writer] for error in each.fatal_errors
        ]
        result.problems += self._too_little()

    def _check_what_was_read(self) -> None:
        """After a round that did not come to its end: what can be said all the same."""
        workloads = [*self._producers, self._tail, *self._members]
        self.result.history = [each for workload in workloads for each in workload.operations]
        report = check_history(self.result.history)
        self.result.problems += [
            str(anomaly)
            for anomaly in report.anomalies
            if anomaly.kind not in (AnomalyKind.UNSEEN, AnomalyKind.DUPLICATE)
        ]

    def _too_little(self) -> list[str]:
        """A round that met nothing shows nothing."""
        result = self.result
        problems = []
        if result.acknowledged < _ACKNOWLEDGED_MIN:
            problems.append(f"vacuous: {result.acknowledged} records acknowledged")
        if result.transactions == 0:
            problems.append("vacuous: no transaction was committed")
        if self._tail.polled == 0:
            problems.append("vacuous: the tail reader has read nothing")
        if sum(result.met.values()) < len(self._plan.faults) / 3:
            problems.append(
                f"vacuous: {sum(result.met.values())} of {len(self._plan.faults)} planned faults"
            )
        return problems

    def _group_problems(
        self, protocol: str, members: list[GroupReader], everything: list[Polled]
    ) -> list[str]:
        seen = {
            (record.topic_partition, record.offset)
            for member in members
            for record in _records(member.operations)
        }
        left_out = [
            record for record in everything if (record.topic_partition, record.offset) not in seen
        ]
        if not left_out:
            return []
        return [
            f"the {protocol} group has committed past {len(left_out)} records that no member was "
            f"given, among them {left_out[0]}"
        ]

    def _await_copies(self, ends: dict[Place, int]) -> None:
        """librdkafka 2.16 may wait for ever for a coordinator that it has taken from its brokers,
        as it does with those that were away; then another copier takes the first one's place."""
        for _ in range(_COPIERS_MAX):
            try:
                self._await_committed(f"copiers-of-{self._sent}", ends, "the copier", _STUCK_S)
            except NotWellError:
                self.result.stuck_copiers += 1
                self._copier.abort()
                self._copier.start()
            else:
                return
        self._await_committed(f"copiers-of-{self._sent}", ends, "the copier")

    def _await_committed(
        self, group: str, ends: dict[Place, int], what: str, timeout_s: float = _CATCH_UP_TIMEOUT_S
    ) -> None:
        """Wait until a group has committed everything up to these last offsets."""
        consumer = Consumer({"bootstrap.servers": self._bootstrap, "group.id": group, **STURDY})
        behind: dict[Place, int] = {}

        def is_there() -> bool:
            nonlocal behind
            try:
                committed = consumer.committed(
                    [TopicPartition(topic, partition) for topic, partition in ends], timeout=5
                )
            except KafkaException:
                return False
            at = {Place(each.topic, each.partition): each.offset for each in committed}
            behind = {
                place: ends[place] + 1 - max(at[place], 0)
                for place in ends
                if at[place] <= ends[place] and ends[place] >= 0
            }
            return not behind

        try:
            self._await(is_there, f"{what} does not get to the end", timeout_s)
        except NotWellError as error:
            raise NotWellError(f"{error}; behind by {behind}") from None
        finally:
            consumer.close()

    def _await(
        self, is_so: Callable[[], bool], problem: str, timeout_s: float = _CATCH_UP_TIMEOUT_S
    ) -> None:
        deadline = time.monotonic() + timeout_s
        while not is_so():
            if time.monotonic() > deadline:
                raise NotWellError(f"{problem} within {timeout_s:g} s: {self._cluster.picture()}")
            time.sleep(0.1)

    def _acknowledged(self) -> int:
        return min(producer.acknowledged for producer in [*self._producers, self._writer])

    def _stop_all(self) -> None:
        for workload in self._workloads:
            workload.begin_stop()
        self._copier.kill()
        for workload in self._workloads:
            workload.await_stop(MESSAGE_TIMEOUT_S + 10)


def _records(operations: Sequence[Operation]) -> list[Polled]:
    return [record for operation in operations for poll in operation.polls for record in poll]
