"""This broker in the eyes of the controller: registered, alive, serving, on its way out.

    registering ──epoch──▶ catching up ──the image has the registration──▶ running ──▶ stopping

A broker registers once in its life and from then on says by heartbeats that it lives, how far its
image is and what it wants. It serves when the controller has unfenced it. One that is fenced later,
for it was not heard of, goes on with its heartbeats and is unfenced again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tidelog.errors import TidelogError
from tidelog.promise import Promise
from tidelog.protocol.apis.broker_heartbeat import BrokerHeartbeatRequest
from tidelog.protocol.errors import ApiError, ErrorCode

if TYPE_CHECKING:
    from collections.abc import Callable

    from tidelog.protocol.apis.broker_heartbeat import BrokerHeartbeatResponse
    from tidelog.protocol.apis.broker_registration import (
        BrokerRegistrationRequest,
        BrokerRegistrationResponse,
    )
    from tidelog.server.network.reactor import Timer
    from tidelog.server.node import Node

_REGISTRATION_RETRY_S = 0.5
_SOON_S = 0.05
# What another try, or another controller, may change.
_REFUSED_FOR_GOOD = (
    ErrorCode.INCONSISTENT_CLUSTER_ID,
    ErrorCode.INVALID_REGISTRATION,
    ErrorCode.UNSUPPORTED_VERSION,
    ErrorCode.BROKER_ID_NOT_REGISTERED,
)


class RegistrationError(TidelogError):
    """The controller does not take this broker; `code` says why, where it said so."""

    def __init__(self, error: BaseException) -> None:
        super().__init__(f"the controller does not take this broker: {error}")
        self.code = error.code if isinstance(error, ApiError) else None


class BrokerLifecycle:
    """Registers the broker and keeps it alive. `epoch` is -1 before the registration."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self.epoch = -1
        self.is_fenced = True
        self.on_unfenced: Callable[[], None] = lambda: None
        """Called each time the controller lets the broker serve."""
        self._offline_log_dirs: list[bytes] = []
        self._full_log_dirs: list[bytes] = []
        self._wants_shut_down = False
        self._stopped: Promise[None] | None = None
        self._timer: Timer | None = None
        self._is_asking = False
        self._is_due_again = False

    def register(self, registration: BrokerRegistrationRequest) -> Promise[int]:
        """The broker's epoch. Tried until the initial registration timeout is over, unless the
        controller refuses it for good."""
        timeout_ms = self._node.config.initial_broker_registration_timeout_ms
        deadline = self._node.world.monotonic() + timeout_ms / 1000
        registered: Promise[int] = Promise()
        self._try(registration, registered, deadline)
        return registered

    def _try(
        self, registration: BrokerRegistrationRequest, registered: Promise[int], deadline: float
    ) -> None:
        node = self._node

        def answered(answer: Promise[Any]) -> None:
            error = answer.error
            if error is None:
                self.registered(answer.result())
                registered.resolve(self.epoch)
            elif (
                not isinstance(error, ApiError)
                or error.code in _REFUSED_FOR_GOOD
                or self._is_of_another_node(error)
                or node.world.monotonic() >= deadline
                or node.is_stopping
            ):
                registered.fail(error)
            else:
                node.log.info("registration_delayed", error=error)
                node.reactor.call_later(
                    _REGISTRATION_RETRY_S, lambda: self._try(registration, registered, deadline)
                )

        left_s = max(_REGISTRATION_RETRY_S, deadline - node.world.monotonic())
        node.controller.ask(registration, timeout_s=left_s).when_done(answered)

    def registered(self, response: BrokerRegistrationResponse) -> None:
        """The controller has taken the broker."""
        self.epoch = response.broker_epoch

    def _is_of_another_node(self, error: ApiError) -> bool:
        """Whether a node with other directories has the id and lives: it is not an earlier life of
        this one, whose session would end."""
        node = self._node
        known = node.image.brokers.get(node.config.node_id)
        return (
            error.code == ErrorCode.DUPLICATE_BROKER_REGISTRATION
            and known is not None
            and not known.fenced
            and bool(known.log_dirs)
            and not {state.directory_id for state in node.store.directories} & set(known.log_dirs)
        )

    # Heartbeats

    def make_heartbeat(self) -> BrokerHeartbeatRequest:
        """What the broker says of itself now."""
        node = self._node
        return BrokerHeartbeatRequest(
            broker_id=node.config.node_id,
            broker_epoch=self.epoch,
            current_metadata_offset=node.image.offset,
            want_shut_down=self._wants_shut_down,
            offline_log_dirs=self._offline_log_dirs,
            full_log_dirs=self._full_log_dirs,
        )

    def start_heartbeats(self) -> None:
        """From now on by a timer."""
        self._schedule(self._node.config.broker_heartbeat_interval_ms / 1000)

    def directories_failed(self, directory_ids: list[bytes]) -> None:
        """The controller is told of directories that are offline."""
        self._offline_log_dirs = directory_ids
        self.beat_now()

    def directories_are_full(self, directory_ids: list[bytes]) -> None:
        """The controller is told of directories that take no records for want of room."""
        self._full_log_dirs = directory_ids
        self.beat_now()

    def beat_now(self) -> None:
        """Do not wait for the next heartbeat."""
        if self.epoch >= 0:
            self._schedule(0.0)

    def shut_down(self) -> Promise[None]:
        """Has others lead what this broker leads; kept when the controller lets it stop."""
        if self._stopped is None:
            self._stopped = Promise()
            self._wants_shut_down = True
            self.beat_now()
        return self._stopped

    def close(self) -> None:
        """No more heartbeats."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self.epoch = -1

    def _schedule(self, delay_s: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._node.reactor.call_later(delay_s, self._beat)

    def _beat(self) -> None:
        self._timer = None
        if self.epoch < 0:
            return
        if self._is_asking:
            self._is_due_again = True
            return
        self._is_asking = True
        node = self._node
        timeout_s = node.config.broker_session_timeout_ms / 2000
        answer = node.controller.ask(self.make_heartbeat(), timeout_s=timeout_s)
        answer.when_done(self._beaten)

    def _beaten(self, answer: Promise[Any]) -> None:
        self._is_asking = False
        if self.epoch < 0:
            return
        interval_s = self._node.config.broker_heartbeat_interval_ms / 1000
        if answer.error is not None:
            self._node.log.warning("heartbeat_failed", error=answer.error)
            if self._is_replaced(answer.error):
                self._node.fail(RegistrationError(_taken(self._node.config.node_id)))
                return
        else:
            self.heard(answer.result())
        hurries = self._is_due_again or self.is_fenced or self._wants_shut_down
        self._is_due_again = False
        self._schedule(_SOON_S if hurries else interval_s)

    def _is_replaced(self, error: BaseException) -> bool:
        """Whether another process has registered under the same id."""
        return isinstance(error, ApiError) and error.code == ErrorCode.STALE_BROKER_EPOCH

    def heard(self, response: BrokerHeartbeatResponse) -> None:
        """The controller's answer to a heartbeat."""
        was_fenced, self.is_fenced = self.is_fenced, response.is_fenced
        if was_fenced and not self.is_fenced:
            self.on_unfenced()
        elif self.is_fenced and not was_fenced and not self._wants_shut_down:
            self._node.log.warning("fenced", broker_epoch=self.epoch)
        if response.should_shut_down and self._stopped is not None and not self._stopped.is_done:
            self._stopped.resolve(None)


def _taken(node_id: int) -> ApiError:
    return ApiError(
        ErrorCode.DUPLICATE_BROKER_REGISTRATION,
        f"another node has registered as node {node_id} at the same time",
    )
