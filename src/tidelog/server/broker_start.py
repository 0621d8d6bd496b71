"""From a quorum with a leader to a broker that serves: registration, and what follows it.

    waiting for a leader ──▶ registering ──▶ catching up ──▶ partitions taken up ──▶ unfenced
                              an epoch        the image has     coordinators,         clients are
                                              that epoch        cleaning, heartbeats  served

A node that is the whole quorum goes through all of it before its loop turns. Any other one does it
while it runs, and serves nothing but what the quorum stands on until the end.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tidelog.cluster.controller.broker_registrations import feature_ranges
from tidelog.cluster.controller.config_changes import MIN_INSYNC_REPLICAS
from tidelog.cluster.features import METADATA_VERSION
from tidelog.errors import TidelogError
from tidelog.protocol.apis.broker_registration import (
    BrokerRegistrationRequest,
    Feature,
    Listener,
)
from tidelog.protocol.uuids import random_uuid
from tidelog.server.broker_lifecycle import RegistrationError
from tidelog.server.coordination.group_coordinator import GroupCoordinator
from tidelog.server.coordination.transaction_coordinator import TransactionCoordinator
from tidelog.server.log_cleaning import LogCleaning
from tidelog.server.maintenance import Maintenance

if TYPE_CHECKING:
    from tidelog.cluster.metadata.image import BrokerImage, MetadataImage
    from tidelog.promise import Promise
    from tidelog.protocol.schema import Message
    from tidelog.server.node import Node


class BrokerStart:
    """One node's way into its cluster as a broker."""

    _registration: BrokerRegistrationRequest
    _last_run: BrokerImage | None
    """What the metadata had of this broker before this life."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._is_registering = False

    def begin(self) -> None:
        """Register at once, or when somebody leads the quorum."""
        node = self._node
        if node.metadata.is_active:
            self._register_now()
            return
        node.log.info("waiting_for_quorum", node_id=node.config.node_id)
        node.metadata.leader_listeners.append(self._register_when_led)
        node.reactor.call_soon(self._register_when_led)
        node.accept_nodes()

    def tell_registration_again(self) -> None:
        """A newer metadata.version may know something of the broker that the one before did not."""

        def answered(answer: Promise[Any]) -> None:
            if answer.error is not None:
                self._node.log.error("registration_refused", error=answer.error)

        self._node.controller.ask(self._registration).when_done(answered)

    def _register_now(self) -> None:
        """The whole quorum is this node: all of it happens before the loop turns."""
        lifecycle = self._node.lifecycle
        self._check_levels()
        lifecycle.registered(self._ask_now(self._make_registration()))
        self._take_up()
        lifecycle.heard(self._ask_now(lifecycle.make_heartbeat()))

    def _ask_now(self, body: Message) -> Any:
        """The answer of this node's controller at a start, when the loop does not turn yet."""
        answer = self._node.controller.ask_here(body)
        self._node.metadata.settle()
        return answer.result()

    def _register_when_led(self) -> None:
        """Somebody leads the quorum, so there is a controller to register with."""
        node = self._node
        if self._is_registering or node.is_stopping or node.metadata.leader_id < 0:
            return
        node.metadata.leader_listeners.remove(self._register_when_led)
        self._is_registering = True
        node.lifecycle.register(self._make_registration()).when_done(self._registered)

    def _registered(self, registered: Promise[int]) -> None:
        node = self._node
        if node.is_stopping:
            return
        error = registered.error
        if error is not None:
            node.fail(RegistrationError(error))
            return
        node.metadata.listeners.append(self._take_up_when_caught_up)
        self._take_up_when_caught_up()

    def _take_up_when_caught_up(self, *_: object) -> None:
        """The image has what was decided about this broker before this life."""
        node = self._node
        own = node.image.brokers.get(node.config.node_id)
        if own is None or node.is_stopping:
            return
        if own.epoch < node.broker_epoch:
            self._last_run = own
            return
        node.metadata.listeners.remove(self._take_up_when_caught_up)
        try:
            self._check_levels()
            self._take_up()
        except (TidelogError, OSError) as error:
            node.fail(error)
            return
        node.lifecycle.beat_now()

    def _take_up(self) -> None:
        """Take up the partitions; the controller may let the broker serve from now on."""
        node = self._node
        local = node.local_partitions
        local.claim_logs(node.metadata, self._last_run)
        self._tell_overridden_settings()
        node.take_over_settings(node.image)
        node.throttles.load(node.image)
        local.load(node.image)
        node.metadata.listeners += [
            node.throttles.on_metadata,
            local.apply,
            node.followed_partitions.on_metadata,
            node.on_metadata,
        ]
        node.in_sync_sets.start()
        node.groups = GroupCoordinator(node)
        node.groups.start()
        node.transactions = TransactionCoordinator(node)
        node.transactions.start()
        local.on_made_late = self._partitions_made_late
        node.cleaning = LogCleaning(node)
        node.cleaning.start()
        Maintenance(node).start()
        node.lifecycle.on_unfenced = self._unfenced
        node.lifecycle.start_heartbeats()

    def _unfenced(self) -> None:
        """The controller lets the broker serve."""
        node = self._node
        if node.is_ready:
            node.log.info("unfenced", broker_epoch=node.broker_epoch)
        elif not node.is_stopping:  # else its listeners are closed
            node.serve()

    def _partitions_made_late(self, image: MetadataImage) -> None:
        self._node.groups.host.refresh(image)
        self._node.transactions.host.refresh(image)

    def _check_levels(self) -> None:
        """The levels on disk are what counts; they may be others than those of a first start."""
        config, image = self._node.config, self._node.image
        config.check_directories(image.metadata_version)
        chosen = {**config.initial_feature_levels}
        if config.initial_metadata_version is not None:
            chosen[METADATA_VERSION] = config.initial_levels[METADATA_VERSION]
        for name, level in chosen.items():
            if level != image.finalized_level(name):
                self._node.log.warning(
                    "initial_levels_ignored",
                    feature=name,
                    wanted=level,
                    finalized=image.finalized_level(name),
                )

    def _make_registration(self) -> BrokerRegistrationRequest:
        node = self._node
        config = node.config
        self._last_run = known = node.image.brokers.get(config.node_id)
        self._registration = BrokerRegistrationRequest(
            broker_id=config.node_id,
            cluster_id=node.cluster_id,
            incarnation_id=random_uuid(node.world.random),
            listeners=[
                Listener(name=each.name, host=each.advertised_host, port=each.advertised_port)
                for each in node.listeners
                if each.name not in config.controller_listener_names
            ],
            features=[
                Feature(name=name, min_supported_version=lowest, max_supported_version=highest)
                for name, lowest, highest in feature_ranges(config.supported_features)
            ],
            rack=config.broker_rack,
            log_dirs=[state.directory_id for state in node.store.directories if state.online],
            previous_broker_epoch=(
                known.epoch if known is not None and node.store.stopped_cleanly else -1
            ),
        )
        return self._registration

    def _tell_overridden_settings(self) -> None:
        """min.insync.replicas is kept for all brokers together."""
        node = self._node
        static = node.config.explicit.get(MIN_INSYNC_REPLICAS)
        of_cluster = node.image.cluster_configs().get(MIN_INSYNC_REPLICAS)
        if static not in (None, of_cluster):
            node.log.warning(
                "setting_overridden", setting=MIN_INSYNC_REPLICAS, by_cluster=of_cluster
            )
