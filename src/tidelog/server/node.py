"""The node: its parts put together, started and stopped.

Order of a start: take the data directories and recover the logs; load the metadata; take the ports;
take part in the quorum; register with the controller; lead and follow the partitions; serve. A node
that is the whole quorum gets to the end of that in `start`. Another one waits for the others while
its loop turns, and serves them alone until then.

A stop goes the other way: others lead what this node leads, no new connections, what is under way
is finished, then everything is written down so that the next start has nothing to recover.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from tidelog.cluster.controller.broker_heartbeats import BrokerHeartbeats
from tidelog.cluster.controller.controller_settings import ControllerSettings
from tidelog.cluster.features import METADATA_VERSION, UNSERVED_FEATURES
from tidelog.cluster.metadata.image import (
    ConfigResourceType,
    MetadataDelta,
    MetadataImage,
)
from tidelog.cluster.metadata.metadata_loading import DIRECTORY_NAME
from tidelog.cluster.metadata.metadata_log import MetadataLog
from tidelog.cluster.metadata.snapshotting import SnapshotOptions
from tidelog.cluster.replication.partition_registry import PartitionRegistry
from tidelog.cluster.replication.waiting import Waiting
from tidelog.errors import TidelogError
from tidelog.protocol.errors import ApiError, ErrorCode
from tidelog.protocol.uuids import format_uuid
from tidelog.raft.local_node import NO_VOTERS, LocalNode
from tidelog.raft.voters import Endpoint as VoterEndpoint
from tidelog.raft.voters import ReplicaKey, VoterNode, VoterSet
from tidelog.security.quotas import ClientQuotas
from tidelog.server.broker_lifecycle import BrokerLifecycle
from tidelog.server.broker_start import BrokerStart
from tidelog.server.client_metrics import ClientMetrics
from tidelog.server.configuration.config_layers import broker_config_layers
from tidelog.server.configuration.node_config import SETTINGS
from tidelog.server.controller.channel import ControllerChannel
from tidelog.server.controller.controller import Controller
from tidelog.server.controller.controller_registration import ControllerRegistration
from tidelog.server.controller.quorum_requests import QuorumRequests
from tidelog.server.controller.upkeep import ControllerUpkeep
from tidelog.server.controller.voter_joining import VoterJoining
from tidelog.server.coordination.group_coordinator import GroupCoordinator
from tidelog.server.coordination.internal_topics import InternalTopics
from tidelog.server.coordination.transaction_coordinator import TransactionCoordinator
from tidelog.server.dispatch import Dispatcher
from tidelog.server.fetch_sessions import FetchSessions
from tidelog.server.handler import load_handlers
from tidelog.server.local_partitions import LocalPartitions
from tidelog.server.log_cleaning import LogCleaning
from tidelog.server.maintenance import Maintenance
from tidelog.server.metrics import Metrics
from tidelog.server.network.acceptor import Acceptor, LocalAcceptor, accept_locally, accept_on
from tidelog.server.network.connections import Connections
from tidelog.server.network.listener import Listener, format_address
from tidelog.server.network.peers import Peers
from tidelog.server.network.reachability import Reachability
from tidelog.server.network.reactor import Reactor
from tidelog.server.recovery_lines import RecoveryLines
from tidelog.server.replication.followed_partitions import FollowedPartitions
from tidelog.server.replication.follower_news import FollowerNews
from tidelog.server.replication.in_sync_sets import InSyncSets
from tidelog.server.replication.replica_selector import replica_selector
from tidelog.server.replication.throttles import Throttles
from tidelog.server.shutdown import Shutdown
from tidelog.server.structured_logs import Level, StructuredLog
from tidelog.storage.directories.log_directory import LogDirectoryError
from tidelog.storage.directories.meta_properties import FILE_NAME as META_PROPERTIES
from tidelog.storage.log_store import LogStore
from tidelog.storage.store_options import StoreOptions

if TYPE_CHECKING:
    from tidelog.cluster.metadata.image import BrokerImage
    from tidelog.protocol.topic_partition import TopicPartition
    from tidelog.server.configuration.node_config import NodeConfig
    from tidelog.server.handler import Handler
    from tidelog.storage.directories.log_directory import DirectoryState
    from tidelog.storage.log import Log
    from tidelog.world import World
    from tidelog.world.network import Address


class NodeCrashedError(TidelogError):
    """A background thread met a bug, and the node has ended."""

    def __init__(self, bug: BaseException) -> None:
        super().__init__(
            f"the node ended because of a bug ({type(bug).__name__}: {bug}); the log has the "
            "traceback. Start it again: what was acknowledged is recovered"
        )


class Node:
    """One broker and controller in one process, on one event loop.

    The attributes are what handlers work with. All of it belongs to the loop thread; from other
    threads only `request_stop` and `reactor.post` may be called. `store_options` are the sizes of
    its journals and the like, which have no settings.
    """

    def __init__(
        self, config: NodeConfig, world: World, store_options: StoreOptions | None = None
    ) -> None:
        self.config = config
        self._static_config = config
        self._told_without_effect: set[str] = set()
        self._store_options = store_options or StoreOptions()
        self.world = world
        self.now_ms = world.wall_ms
        """Wall-clock time in milliseconds."""
        self.log = StructuredLog(
            level=Level[config.logging_level.upper()],
            as_json=config.logging_format == "json",
            now_ms=world.wall_ms,
            stream=world.log_stream,
        )
        self.metrics = Metrics()
        self.reactor = Reactor(world, self.log)
        self.waiting = Waiting(
            world.monotonic, self.reactor.call_later, lambda: self.log.exception("waiter_failed")
        )
        self.fetch_sessions = FetchSessions(
            config.max_incremental_fetch_session_cache_slots,
            config.min_incremental_fetch_session_eviction_ms,
            world.random,
            lambda replica_id: FollowerNews(self.waiting, self.throttles.leader, replica_id),
        )
        self.throttles = Throttles(config, world, self.reactor)
        self.quotas = ClientQuotas(
            window_count=config.quota_window_num,
            window_ms=config.quota_window_size_seconds * 1000,
            mutation_span_ms=config.controller_quota_window_num
            * config.controller_quota_window_size_seconds
            * 1000,
        )
        self.has_quotas = False
        self.connections = Connections(config, self.reactor, self.metrics, self.log, self.quotas)
        self.client_metrics = ClientMetrics(world.random, config.telemetry_max_bytes)
        self.partitions = PartitionRegistry()
        self.internal_topics = InternalTopics(self)
        self.reachability = Reachability(world, self.reactor, self._address_of)
        self.peers = Peers(
            world,
            self.reactor,
            self._address_of,
            f"node-{config.node_id}",
            self.reachability.connection_lost,
        )
        self.followed_partitions = FollowedPartitions(self)
        self.in_sync_sets = InSyncSets(self)
        self.replica_selector = replica_selector(config.replica_selector_class, lambda: self.image)
        self.handlers: dict[int, Handler] = {}
        self.lifecycle = BrokerLifecycle(self)
        self.on_ready: Callable[[], None] = lambda: None
        """Called when clients are served, after `start` if that takes others."""
        self._acceptors: list[Acceptor[Address]] = []
        self._local_acceptor: LocalAcceptor | None = None
        self._broker_start = BrokerStart(self)
        self.is_ready = False
        """Whether clients are served."""
        self._shutdown = Shutdown(self)
        self._bug: BaseException | None = None
        self._failure: Exception | None = None

    store: LogStore
    groups: GroupCoordinator
    transactions: TransactionCoordinator
    cleaning: LogCleaning
    metadata: MetadataLog
    local_partitions: LocalPartitions
    controller: ControllerChannel
    controller_settings: ControllerSettings
    cluster_id: str
    _upkeep: ControllerUpkeep
    _dispatcher: Dispatcher

    @property
    def image(self) -> MetadataImage:
        """The cluster's metadata as of now; immutable."""
        return self.metadata.image

    @property
    def listeners(self) -> list[Listener]:
        """Where the node listens, with the ports it got."""
        return [acceptor.listener for acceptor in self._acceptors]

    @property
    def addresses(self) -> list[tuple[str, int]]:
        """The same as (host, port)."""
        return [(listener.host, listener.port) for listener in self.listeners]

    @property
    def advertised_addresses(self) -> list[str]:
        """Where clients are told to connect, as HOST:PORT."""
        return [
            format_address(listener.advertised_host, listener.advertised_port)
            for listener in self.listeners
        ]

    @property
    def local_address(self) -> str | None:
        """Where readers on this machine get files in place of records, if they do."""
        return None if self._local_acceptor is None else self._local_acceptor.address

    @property
    def _accepting(self) -> list[Acceptor[Address] | LocalAcceptor]:
        local = [] if self._local_acceptor is None else [self._local_acceptor]
        return [*self._acceptors, *local]

    @property
    def is_stopping(self) -> bool:
        """Whether the node takes nothing new any more."""
        return self._shutdown.is_under_way

    @property
    def broker_epoch(self) -> int:
        """Of this life of the broker; -1 before it is registered."""
        return self.lifecycle.epoch

    @property
    def inter_broker_listener(self) -> str:
        """The name of the listener that brokers use among themselves."""
        return self.config.inter_broker_listener_name

    def _address_of(self, node_id: int) -> Address | None:
        broker = self.image.brokers.get(node_id)
        return None if broker is None else self.address_of(broker)

    def address_of(self, broker: BrokerImage) -> Address | None:
        """Where this node reaches a broker."""
        if not broker.endpoints:
            return None
        # A node without a broker has no listener of that name itself.
        endpoint = broker.endpoint(self.inter_broker_listener) or broker.endpoints[0]
        return endpoint.host, endpoint.port

    # Start

    def start(self) -> None:
        """Open everything and take the ports; serving begins with `run`, or later, with `is_ready`,
        if the node has to wait for others.

        Raises a TidelogError that says what is the matter; nothing stays open then.
        """
        self._started_s = self.world.monotonic()
        self._tell_without_effect(self.config.without_effect)
        try:
            self._open()
        except BaseException:
            self._abandon()
            raise

    def _open(self) -> None:
        config = self.config
        self.store = LogStore.open(
            [Path(directory) for directory in config.log_dirs],
            replace(
                self._store_options,
                node_id=config.node_id,
                cluster_id=config.cluster_id,
                checkpoint_interval_ms=config.log_flush_offset_checkpoint_interval_ms,
                sync_threads=config.num_recovery_threads_per_data_dir,
            ),
            world=self.world,
            post=self.reactor.post,
            on_crash=self.crash,
            progress=RecoveryLines(self.log, self.world.monotonic).tell,
        )
        self.store.high_watermark_of = self._high_watermark_of
        self.store.on_moved = self._log_moved
        self.store.move_throttle = self.throttles.moves
        self.cluster_id = self.store.cluster_id
        first_directory = self.store.directories[0]
        if not first_directory.online:
            raise LogDirectoryError(
                f"{first_directory.path} holds the metadata and cannot be used: "
                f"{first_directory.error}"
            )
        key = ReplicaKey(config.node_id, first_directory.directory_id)
        self.metadata = MetadataLog.load(
            first_directory.path / DIRECTORY_NAME,
            world=self.world,
            node_id=config.node_id,
            founder=VoterNode(key, ()) if config.starts_new_cluster else None,
            static_voter_ids=[voter.node_id for voter in config.controller_quorum_voters],
            post=self.reactor.post,
            on_crash=self.crash,
            on_exception=lambda: self.log.exception("metadata_listener_failed"),
            options=SnapshotOptions(
                bytes_max=config.metadata_log_max_record_bytes_between_snapshots,
                interval_ms=config.metadata_log_max_snapshot_interval_ms,
            ),
            initial_levels=config.initial_levels,
            supported_features=config.supported_features,
        )
        self.controller_settings = ControllerSettings(
            node_id=config.node_id,
            cluster_id=self.cluster_id,
            default_partition_count=config.num_partitions,
            default_replication_factor=config.default_replication_factor,
            delete_topic_enable=config.delete_topic_enable,
            broker_config=config.explicit,
            supported_features=config.supported_features,
        )
        local = LocalPartitions(
            config.node_id,
            self.store,
            self.partitions,
            self.waiting,
            self._broker_config,
            lambda: int(self.world.monotonic() * 1000),
            self.reactor.call_later,
            self.log,
        )
        local.on_follow = self.followed_partitions.follow
        local.on_unfollow = self.followed_partitions.unfollow
        self.local_partitions = local
        self._acceptors = []
        for listener in config.parsed_listeners:
            self._acceptors.append(accept_on(listener, config, self.world, self.connections))
        if config.local_reads_enable:
            self._local_acceptor = accept_locally(self.world, self.listeners[0], self.connections)
        self.handlers = {
            key: handler
            for key, handler in load_handlers().items()
            if config.is_broker or handler.serves_before_node or handler.on_controller
        }
        self._dispatcher = Dispatcher(self, self.handlers)
        self.connections.dispatch = self._dispatcher.dispatch
        self.store.on_directory_failure = lambda state, lost: self._directory_failed(
            local, state, lost
        )
        self.store.on_full_directories = self.lifecycle.directories_are_full
        controller = Controller(
            self.metadata,
            self.controller_settings,
            self.quotas,
            self.world.random,
            heartbeats=BrokerHeartbeats(config.broker_session_timeout_ms),
            now_ms=lambda: int(self.world.monotonic() * 1000),
            config_layers=lambda: broker_config_layers(self),
            on_exception=lambda: self.log.exception("controller_failed"),
            on_unclean_election=lambda election: self.log.warning(
                "unclean_leader_election", **election._asdict()
            ),
        )
        self._upkeep = ControllerUpkeep(self, controller)
        self.controller = ControllerChannel(self, controller, local)
        self.metadata.leader_listeners.append(lambda: self._leader_changed(controller))
        self._join_quorum(key)
        self.reactor.turn_end_hooks.append(self._end_turn)
        if config.is_broker:
            self._broker_start.begin()
        else:
            self.reactor.call_soon(self._serve_as_controller)

    @property
    def quorum_endpoints(self) -> tuple[VoterEndpoint, ...]:
        """Where other controllers reach this one."""
        names = self.config.controller_listener_names
        return tuple(
            VoterEndpoint(listener.name, listener.advertised_host, listener.advertised_port)
            for listener in self.listeners
            if not names or listener.name in names
        )

    def _join_quorum(self, key: ReplicaKey) -> None:
        config = self.config
        endpoints = self.quorum_endpoints
        static = VoterSet(
            VoterNode(
                ReplicaKey(voter.node_id),
                (VoterEndpoint(config.quorum_listener_name, voter.host, voter.port),),
            )
            for voter in config.controller_quorum_voters
        )
        if config.starts_new_cluster:
            # For a log that names no voters, of a Kafka at kraft.version 0.
            static = VoterSet([VoterNode(ReplicaKey(config.node_id), endpoints)])
        requests = QuorumRequests(self.peers, config.controller_quorum_request_timeout_ms)
        self.metadata.join(
            LocalNode(
                key,
                endpoints,
                config.quorum_listener_name,
                self.cluster_id,
                bootstrap=config.controller_quorum_bootstrap_servers,
                static_voters=static if static else NO_VOTERS,
            ),
            config.quorum_settings,
            self.reactor.call_later,
            requests.send,
        )
        self._check_directory(key)
        self.metadata.settle_start()

    def _check_directory(self, key: ReplicaKey) -> None:
        """A voter is known by its directory. One that is the whole quorum cannot ask others to take
        its new directory in."""
        voters = self.metadata.quorum.voters
        known = voters.get(key.id)
        if known is not None and len(voters) == 1 and not known.matches(key):
            path = self.store.directories[0].path
            found, wanted = format_uuid(key.directory_id), format_uuid(known.key.directory_id)
            raise LogDirectoryError(
                f"{path / META_PROPERTIES} has directory.id={found}, but the metadata in {path} is "
                f"that of directory.id={wanted}, the only voter of the quorum. Restore the file "
                "from a copy, or write that id into it"
            )

    def _leader_changed(self, controller: Controller) -> None:
        metadata = self.metadata
        self.log.info("quorum_leader", leader=metadata.leader_id, epoch=metadata.leader_epoch)
        self.peers.controller_is(metadata.leader_id)
        if metadata.is_active:
            # Before the own broker has registered, who is in its place was an earlier process.
            unserved = [name for name in UNSERVED_FEATURES if self.image.finalized_level(name)]
            if unserved:
                self.log.warning("features_switched_off", features=",".join(sorted(unserved)))
            controller.activate(() if self.broker_epoch >= 0 else (self.config.node_id,))
            self._upkeep.start()
        else:
            self._upkeep.stop()

    def accept_nodes(self) -> None:
        """Take connections; until `serve`, only what the quorum stands on is answered."""
        for acceptor in self._acceptors:
            acceptor.start()

    def _serve_as_controller(self) -> None:
        """A node without a broker takes part in the quorum, and serves what that stands on."""
        Maintenance(self).start_of_controller()
        self.serve()

    def serve(self) -> None:
        """Answer all requests from now on."""
        self._dispatcher.serve_all()
        self.is_ready = True
        for acceptor in self._accepting:
            acceptor.start()
        self.log.info(
            "node_started",
            node_id=self.config.node_id,
            cluster_id=self.cluster_id,
            listeners=",".join(format_address(host, port) for host, port in self.addresses),
            advertised=",".join(self.advertised_addresses),
            partitions=len(self.partitions),
            seconds=round(self.world.monotonic() - self._started_s, 3),
        )
        if self.config.is_controller:
            ControllerRegistration(self).start()
            if self.config.controller_quorum_auto_join_enable:
                VoterJoining(self).start()
        self.on_ready()

    def _abandon(self) -> None:
        """Close what a start that failed has opened."""
        for acceptor in self._accepting:
            acceptor.close()
        self.peers.close()
        if hasattr(self, "metadata"):
            if hasattr(self.metadata, "quorum"):
                self.metadata.close()
            else:
                self.metadata.abandon()
        if hasattr(self, "store"):
            self.store.close(clean=False)
        self.reactor.close()

    # While it runs

    def run(self) -> None:
        """Serve until `request_stop`, then shut down cleanly.

        Raises NodeCrashedError when a background thread has met a bug.
        """
        try:
            self.reactor.run()
        finally:
            self.finish()

    def _end_turn(self) -> None:
        """All appends of a turn become durable together, all answers leave together."""
        store = self.store
        store.commit()
        self.waiting.serve()
        # Those who were called may have appended in their turn.
        store.commit()
        self.connections.budget.set_congested(store.congested)
        self.connections.flush_dirty()

    def broker_connection_closed(self, broker_id: int, broker_epoch: int) -> None:
        """A connection over which a broker sent heartbeats to this controller has ended."""
        self._upkeep.connection_closed(broker_id, broker_epoch)

    def _high_watermark_of(self, log: Log) -> int:
        partition = self.partitions.get(*log.topic_partition)
        if partition is None:
            return self.store.checkpointed_high_watermark(log)
        return partition.high_watermark

    def _log_moved(self, log: Log) -> None:
        self.log.info("log_moved", partition=f"{log.topic_partition}", directory=log.directory)
        partition = self.partitions.get(*log.topic_partition)
        if partition is not None:
            partition.replace_log(log)

    def _broker_config(self, image: MetadataImage) -> dict[str, str]:
        """The broker's settings that hold now, as far as they were set."""
        return self.controller_settings.effective_broker_config(image)

    def on_metadata(
        self, before: MetadataImage, after: MetadataImage, delta: MetadataDelta
    ) -> None:
        """The image has been replaced; partitions have heard of it."""
        for broker_id in delta.brokers:
            self.reachability.registered(broker_id)
            self.in_sync_sets.broker_changed(broker_id)
            broker = after.brokers.get(broker_id)
            if broker is not None and broker.in_controlled_shutdown:
                # It may stop when everybody knows who leads now.
                self.lifecycle.beat_now()
        if delta.quotas or any(
            resource.type == ConfigResourceType.BROKER for resource in delta.configs
        ):
            self.take_over_settings(after)
        if METADATA_VERSION in delta.features:
            self._broker_start.tell_registration_again()

    def take_over_settings(self, image: MetadataImage) -> None:
        """The settings that can change while the node runs are those of the image."""
        self.quotas.replace(image.client_quotas)
        self.has_quotas = self.quotas.limits_clients
        before = self.config
        dynamic = {**image.cluster_configs(), **image.broker_configs(before.node_id)}
        self.config = self._static_config.changed(dynamic)
        unknown = [name for name in dynamic if name not in SETTINGS]
        self._tell_without_effect([*self.config.without_effect, *unknown])
        self.connections.take_over_limits(self.config)
        self.throttles.take_over_limits(self.config)
        self.store.set_sync_threads(self.config.num_recovery_threads_per_data_dir)
        if before.log_cleaner_backoff_ms != self.config.log_cleaner_backoff_ms and hasattr(
            self, "cleaning"
        ):
            self.cleaning.look_anew()

    def _tell_without_effect(self, names: list[str]) -> None:
        """One line for all the settings that were made and change nothing, if they are new."""
        new = set(names) - self._told_without_effect
        if new:
            self._told_without_effect |= new
            self.log.warning("settings_without_effect", settings=",".join(sorted(new)))

    def _directory_failed(
        self, local: LocalPartitions, state: DirectoryState, lost: list[TopicPartition]
    ) -> None:
        self.log.error(
            "directory_failed", directory=state.path, error=state.error, partitions=len(lost)
        )
        local.fail(lost)
        directories = self.store.directories
        if any(each.online for each in directories):
            # The next start has to know that topics may be deleted behind this one's back.
            offline = [each.directory_id for each in directories if not each.online]
            self.lifecycle.directories_failed(offline)
        elif len(self.image.brokers) > 1:
            # It would lead on what nobody can read or write there; the others go on without it.
            error = ApiError(
                ErrorCode.KAFKA_STORAGE_ERROR,
                f"no log directory can be used any more; {state.path} has failed: {state.error}",
            )
            self.reactor.post(lambda: self.fail(error))

    # Stop

    def request_stop(self) -> None:
        """Shut down cleanly. From any thread and any number of times; returns at once."""
        self.reactor.post(self._shutdown.begin)

    def fail(self, error: Exception) -> None:
        """End because the node cannot go on; `run` raises the error."""
        self._failure = self._failure or error
        self.log.error("node_failed", error=error)
        self._shutdown.begin(at_once=True)

    def crash(self, thread: str, error: BaseException) -> None:
        """End because a background thread has met a bug; from any thread, returns at once.

        What it did not do is left to the next start's recovery, as after a kill. A disk that does
        not keep the metadata is no bug, and ends the node too.
        """
        if isinstance(error, TidelogError):
            failure = error
            self.reactor.post(lambda: self.fail(failure))
            return
        self._bug = self._bug or error
        self.log.critical("thread_failed", error, thread=thread)
        self.reactor.post(lambda: self._shutdown.begin(at_once=True))

    def stop_accepting(self) -> None:
        """Take no new connections."""
        for acceptor in self._accepting:
            acceptor.close()

    def finish(self) -> None:
        """Write everything down and let go of it: the loop has ended.

        Raises NodeCrashedError when it ended because a background thread has met a bug.
        """
        # Everybody who is told of changes is still there.
        self.metadata.settle()
        self.in_sync_sets.close()
        self.followed_partitions.close()
        self._upkeep.stop()
        self.lifecycle.close()
        self.peers.close()
        if hasattr(self, "cleaning"):
            self.cleaning.close()
            self.transactions.close()
            self.groups.close()
        self.metadata.close()
        self.peers.close()  # the quorum may have said a last word
        self.store.close(clean=self._bug is None)
        self.reactor.close()
        self.log.info("node_stopped", node_id=self.config.node_id)
        if self._bug is not None:
            raise NodeCrashedError(self._bug) from self._bug
        if self._failure is not None:
            raise self._failure
