"""Carries planned faults out on a cluster: one thread for each lane, and the end of all of them."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from tests.chaos.cluster.chaos_cluster import ChaosCluster
from tests.chaos.cluster.faults import LANES, Fault, Kind, resolved
from tests.chaos.cluster.hosts import CLIENTS, Cut, SlowLink, bridge, isolate, one_way, split

_SERVING_TIMEOUT_S = 15.0
_LOSS_PERCENT = 2.0


class Injection:
    """The faults of one round. `met` counts those that took place, by their kind."""

    def __init__(
        self,
        cluster: ChaosCluster,
        faults: list[Fault],
        *,
        kill_copier: Callable[[], None],
        say: Callable[[str], None],
    ) -> None:
        self._cluster = cluster
        self._faults = faults
        self._kill_copier = kill_copier
        self._say = say
        self.met: Counter[Kind] = Counter()
        self.errors: list[str] = []
        self._began = 0.0
        self._is_over = threading.Event()

    def run(self, span_s: float) -> None:
        """Returns after `span_s`, when the last fault is over and everything runs again."""
        self._began = time.monotonic()
        lanes = [
            threading.Thread(target=self._run_lane, args=(lane,), name=f"faults-{lane}")
            for lane in LANES
        ]
        for thread in lanes:
            thread.start()
        time.sleep(span_s)
        self._is_over.set()
        for thread in lanes:
            thread.join()

    def _run_lane(self, lane: str) -> None:
        for fault in self._faults:
            if fault.lane != lane:
                continue
            if self._is_over.wait(max(fault.at_s - self._elapsed_s(), 0)):
                return
            try:
                with self._in_effect(fault):
                    self.met[fault.kind] += 1
                    self._is_over.wait(fault.for_s)
            except Exception as error:  # noqa: BLE001  a broken harness is told as such
                self.errors.append(f"{fault}: {error!r}")
                return

    def _elapsed_s(self) -> float:
        return time.monotonic() - self._began

    @contextmanager
    def _in_effect(self, fault: Fault) -> Iterator[None]:
        cluster = self._cluster
        hit = resolved(fault.nodes, cluster.controller)
        self._say(f"{self._elapsed_s():6.2f}s  {fault.kind} {','.join(map(str, hit))}")
        nodes = [cluster.nodes[number] for number in hit]
        match fault.kind:
            case Kind.KILL | Kind.KILL_ALL:
                for node in nodes:
                    node.kill()
                yield
                for node in nodes:
                    node.start()
            case Kind.PAUSE:
                for node in nodes:
                    node.pause()
                yield
                for node in nodes:
                    node.resume()
            case Kind.RESTART:
                for node in nodes:
                    self._stop(node.node_id)
                yield
                for node in nodes:
                    node.start()
            case Kind.ROLLING_RESTART | Kind.ROLLING_UPGRADE:
                if fault.kind is Kind.ROLLING_UPGRADE:
                    cluster.upgrade()
                yield
                for node in nodes:
                    self._stop(node.node_id)
                    node.start()
                    cluster.await_serving(node.node_id, _SERVING_TIMEOUT_S)
            case Kind.POWER_CUT | Kind.POWER_CUT_ALL:
                for node in nodes:
                    node.cut_power()
                yield
                for node in nodes:
                    node.disk.power_on()
                    node.start()
            case Kind.ISOLATE | Kind.SPLIT | Kind.ONE_WAY | Kind.BRIDGE:
                cuts = self._cuts(fault, hit)
                cluster.network.cut(cuts)
                yield
                cluster.network.mend(cuts)
            case Kind.SLOW:
                slow = SlowLink(fault.amount, fault.amount * 2, _LOSS_PERCENT, len(self.met))
                for number in hit:
                    cluster.network.slow_down(number, slow)
                yield
                for number in hit:
                    cluster.network.speed_up(number)
            case Kind.FULL_DISK:
                for node in nodes:
                    node.disk.fill_up(fault.amount)
                yield
                for node in nodes:
                    node.disk.make_room()
            case Kind.CLOCK:
                for node in nodes:
                    node.clock.set_offset(fault.amount)
                yield
                for node in nodes:
                    node.clock.set_offset(0)
            case Kind.KILL_COPIER:
                self._kill_copier()
                yield

    def _stop(self, number: int) -> None:
        if not self._cluster.nodes[number].stop():
            self._say(f"{self._elapsed_s():6.2f}s  node {number} did not stop in time: killed")

    def _cuts(self, fault: Fault, hit: list[int]) -> set[Cut]:
        hosts = list(self._cluster.nodes)
        if fault.with_clients:
            hosts.append(CLIENTS)
        if not hit:
            return set()
        match fault.kind:
            case Kind.ISOLATE:
                return isolate(hit[0], hosts)
            case Kind.ONE_WAY:
                return one_way(hit[0], hosts)
            case Kind.BRIDGE:
                return bridge(hit[0], hit[1:], hosts)
            case _:
                return split(hit, hosts)
