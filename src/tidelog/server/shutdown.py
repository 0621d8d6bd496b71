"""How a node ends in order.

    hand over   others lead what this node leads, while it still serves
    finish      no new connections; produce requests, changes of the metadata and answers that are
                under way come to their end
    resign      a leader of the quorum tells the others, so that they need not find out
    end         the loop stops, and everything is written down

Each step has a limit of time, and one that has nobody to wait for is skipped: a node that is alone,
or has lost the quorum, has nobody to hand over to.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.server.delayed import DelayedFetch

if TYPE_CHECKING:
    from tidelog.server.node import Node

_HAND_OVER_S_MAX = 10.0
_WITHOUT_QUORUM_S_MAX = 1.0
_FINISH_S_MAX = 5.0
_POLL_S = 0.01
_RESIGN_S = 0.1


class Shutdown:
    """One node's end. `begin` may be called any number of times."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._has_begun = False
        self.is_under_way = False
        """Whether the node has handed over, and takes nothing new any more."""
        self._led_at = 0.0  # when the quorum was last seen to work

    def begin(self, *, at_once: bool = False) -> None:
        """Stop in order; `at_once` without handing over."""
        node = self._node
        hands_over = (
            not at_once
            and node.is_ready
            and node.broker_epoch >= 0
            and node.config.controlled_shutdown_enable
        )
        if not hands_over:
            self._finish()
        elif not self._has_begun:
            self._has_begun = True
            node.log.info("node_hands_over", node_id=node.config.node_id)
            self._led_at = node.reactor.now
            if not self._is_alone:
                node.lifecycle.shut_down().when_done(lambda _: self._finish())
            self._watch(node.reactor.now + _HAND_OVER_S_MAX)

    def _watch(self, deadline: float) -> None:
        """Others may stop too: who is last has nobody to hand over to, nor a quorum to ask."""
        node = self._node
        now = node.reactor.now
        if node.metadata.quorum.is_in_touch:
            self._led_at = now
        if self._is_alone or now >= deadline or now - self._led_at > _WITHOUT_QUORUM_S_MAX:
            self._finish()
        elif not self.is_under_way:
            node.reactor.call_later(_POLL_S, lambda: self._watch(deadline))

    @property
    def _is_alone(self) -> bool:
        """Whether there is nobody who could lead what this node leads."""
        own = self._node.config.node_id
        brokers = self._node.image.brokers.values()
        return not any(broker.is_active for broker in brokers if broker.broker_id != own)

    def _finish(self) -> None:
        if self.is_under_way:
            return
        self.is_under_way = True
        node = self._node
        node.log.info("node_stopping", node_id=node.config.node_id)
        node.stop_accepting()
        for waiter in node.waiting.waiters():
            if isinstance(waiter, DelayedFetch):
                waiter.finish()
        node.fetch_sessions.finish_waiting()
        self._end_when_finished(node.reactor.now + _FINISH_S_MAX)

    def _end_when_finished(self, deadline: float) -> None:
        node = self._node
        is_busy = (
            node.metrics.delayed_produces
            or (node.metadata.has_proposals and node.metadata.quorum.is_in_touch)
            or any(connection.is_answering for connection in node.connections.all.values())
        )
        if is_busy and node.reactor.now < deadline:
            node.reactor.call_later(_POLL_S, lambda: self._end_when_finished(deadline))
            return
        quorum = node.metadata.quorum
        if quorum.is_leader and len(quorum.voters) > 1:
            quorum.resign()
            node.reactor.call_later(_RESIGN_S, self._end)
        else:
            self._end()

    def _end(self) -> None:
        self._node.connections.close_all("the node stops")
        self._node.reactor.stop()
