"""What the controller does by itself while it is active.

Brokers that have not been heard of are fenced, and one whose connection has closed at once if it
cannot be reached again; leadership goes back to preferred leaders; partitions without a leader get
one uncleanly where their topic allows that, at once when it is allowed; the coordinators' topics
are given more replicas when brokers join. Everything is a decision like those on requests.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from tidelog.cluster.controller.broker_lifecycle import (
    fence_expired_broker,
    fence_unreachable_broker,
)
from tidelog.cluster.controller.decision import Decision
from tidelog.cluster.controller.elections import balance_leaders, elect_unclean_leaders
from tidelog.cluster.controller.internal_topics import grow_internal_topics, may_grow

if TYPE_CHECKING:
    from tidelog.cluster.metadata.image import BrokerImage, MetadataDelta, MetadataImage
    from tidelog.promise import Promise
    from tidelog.server.controller.controller import Controller
    from tidelog.server.network.reactor import Timer
    from tidelog.server.node import Node

_SESSION_CHECKS = 8  # in the time of a session
_MORE_TO_DO_S = 0.1
_UNCLEAN_ELECTION = "unclean.leader.election.enable"


class ControllerUpkeep:
    """Runs between `start` and `stop`, on the node whose controller is active."""

    def __init__(self, node: Node, controller: Controller) -> None:
        self._node = node
        self._controller = controller
        self._timers: list[Timer] = []
        self._is_running = False
        self._probed: set[int] = set()
        node.metadata.listeners.append(self._on_metadata)

    def start(self) -> None:
        if self._is_running:
            return
        self._is_running = True
        config = self._node.config
        session_s = self._controller.heartbeats.session_timeout_ms / 1000
        self._every(session_s / _SESSION_CHECKS, self._fence_silent)
        self._every(config.unclean_leader_election_interval_ms / 1000, self._elect_uncleanly)
        if config.auto_leader_rebalance_enable:
            self._every(config.leader_imbalance_check_interval_seconds, self._balance)
        self._grow_internal_topics()
        # A broker that ended together with the controller before has no connection to lose.
        for broker in self._controller.latest.brokers.values():
            if broker.broker_id != config.node_id:
                self._probe(broker)

    def stop(self) -> None:
        self._is_running = False
        for timer in self._timers:
            timer.cancel()
        self._timers.clear()

    def _every(self, interval_s: float, work: Callable[[], None]) -> None:
        place = len(self._timers)

        def run() -> None:
            self._timers[place] = self._node.reactor.call_later(interval_s, run)
            work()

        self._timers.append(self._node.reactor.call_later(interval_s, run))

    def _fence_silent(self) -> None:
        controller = self._controller
        while (
            controller.is_active
            and controller.heartbeats.expired(controller.latest, controller.now_ms()) is not None
        ):
            fenced = controller.carry_out(
                lambda: fence_expired_broker(
                    controller.latest,
                    controller.settings,
                    controller.heartbeats,
                    now_ms=controller.now_ms(),
                )
            )
            fenced.when_done(partial(self._tell_fenced, "session expired"))
            if fenced.error is not None:
                return

    def _tell_fenced(self, reason: str, fenced: Promise[Any]) -> None:
        if fenced.error is not None:
            self._node.log.warning("broker_not_fenced", reason=reason, error=fenced.error)
        elif fenced.result() is not None:
            self._node.log.warning("broker_fenced", broker=fenced.result(), reason=reason)

    def _on_metadata(
        self, before: MetadataImage, after: MetadataImage, delta: MetadataDelta
    ) -> None:
        if not self._is_running:
            return

        def setting(image: MetadataImage) -> list[str | None]:
            return [image.configs.get(each, {}).get(_UNCLEAN_ELECTION) for each in delta.configs]

        # A decision is for the next turn: this one has listeners that do not know of it yet.
        if delta.configs and setting(before) != setting(after):
            # Who allows unclean elections has a partition that waits for one.
            self._node.reactor.call_soon(self._elect_uncleanly)
        if may_grow(delta):
            self._node.reactor.call_soon(self._grow_internal_topics)

    def _grow_internal_topics(self) -> None:
        controller = self._controller
        if self._is_running and controller.is_active:
            controller.carry_out(
                lambda: grow_internal_topics(controller.latest, controller.settings)
            )

    # Elections

    def _balance(self) -> None:
        self._elect(partial(balance_leaders, heartbeats=self._controller.heartbeats))

    def _elect_uncleanly(self) -> None:
        self._elect(elect_unclean_leaders)

    def _elect(self, decide: Callable[..., Decision[bool]]) -> None:
        controller = self._controller
        if not self._is_running or not controller.is_active:
            return
        elected = controller.carry_out(lambda: decide(controller.latest, controller.settings))

        def go_on(done: Promise[Any]) -> None:
            if done.error is None and done.result():
                self._node.reactor.call_later(_MORE_TO_DO_S, partial(self._elect, decide))

        elected.when_done(go_on)

    # Brokers whose connection closes

    def connection_closed(self, broker_id: int, broker_epoch: int) -> None:
        """The connection over which a broker sent its heartbeats has ended: does it live?"""
        controller = self._controller
        controller.heartbeats.disconnected(broker_id, broker_epoch)
        broker = controller.latest.brokers.get(broker_id)
        if broker is not None and broker.epoch == broker_epoch:
            self._probe(broker)

    def _probe(self, broker: BrokerImage) -> None:
        """Fences a broker if nobody listens where it did. One that does not answer may be slow, or
        cut off: its session decides."""
        address = self._node.address_of(broker)
        broker_id = broker.broker_id
        if (
            not self._is_running
            or self._node.is_stopping
            or broker.fenced
            or broker_id in self._probed
            or address is None
        ):
            return
        self._probed.add(broker_id)

        def probed(is_gone: bool) -> None:
            self._probed.discard(broker_id)
            if is_gone and self._is_running:
                self._fence_unreachable(broker_id, broker.epoch)

        self._node.reachability.probe(address, probed)

    def _fence_unreachable(self, broker_id: int, broker_epoch: int) -> None:
        controller = self._controller
        fenced = controller.carry_out(
            lambda: fence_unreachable_broker(
                broker_id,
                broker_epoch,
                controller.latest,
                controller.settings,
                controller.heartbeats,
            ).answering(broker_id)
        )
        fenced.when_done(partial(self._tell_fenced, "its process has gone"))
