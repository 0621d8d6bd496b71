"""This node as a controller, registered with the one that counts.

The metadata then says where each controller listens and which levels of features it has, so that no
level is finalized that a voter does not have. A controller registers once in its life, and again
when the metadata has lost it: one of an older metadata.version knows no such records.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.cluster.controller.broker_registrations import feature_ranges
from tidelog.cluster.features import MV_CONTROLLER_REGISTRATION
from tidelog.protocol.apis.controller_registration import (
    ControllerFeature,
    ControllerListener,
    ControllerRegistrationRequest,
)
from tidelog.protocol.uuids import random_uuid

if TYPE_CHECKING:
    from typing import Any

    from tidelog.promise import Promise
    from tidelog.server.node import Node

_RETRY_S = 0.5


class ControllerRegistration:
    """Asks until the metadata has this life of the controller."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._incarnation_id = random_uuid(node.world.random)
        self._is_asking = False

    def start(self) -> None:
        self._node.metadata.listeners.append(lambda *_: self._look())
        self._look()

    def _look(self) -> None:
        node = self._node
        image = node.image
        known = image.controllers.get(node.config.node_id)
        if (
            self._is_asking
            or node.is_stopping
            or image.metadata_version < MV_CONTROLLER_REGISTRATION
            or (known is not None and known.incarnation_id == self._incarnation_id)
        ):
            return
        self._is_asking = True
        node.controller.ask(self._request()).when_done(self._answered)

    def _request(self) -> ControllerRegistrationRequest:
        config = self._node.config
        return ControllerRegistrationRequest(
            controller_id=config.node_id,
            incarnation_id=self._incarnation_id,
            listeners=[
                ControllerListener(name=each.name, host=each.host, port=each.port)
                for each in self._node.quorum_endpoints
            ],
            features=[
                ControllerFeature(
                    name=name, min_supported_version=lowest, max_supported_version=highest
                )
                for name, lowest, highest in feature_ranges(config.supported_features)
            ],
        )

    def _answered(self, answer: Promise[Any]) -> None:
        if answer.error is not None:
            self._node.log.info("controller_registration_delayed", error=answer.error)
        # Where it was taken, the metadata that says so may still be on its way.
        self._node.reactor.call_later(_RETRY_S, self._look_again)

    def _look_again(self) -> None:
        self._is_asking = False
        self._look()
