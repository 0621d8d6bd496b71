"""The node: its parts put together, started and stopped.

Order of a start: take the data directories and recover the logs; load the metadata; take the ports;
register with the controller (this very node); lead the partitions; serve. A stop goes the other
way: no new connections, what is under way is finished, then everything is written down so that the
next start has nothing to recover.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tidelog.cluster.controller.broker_heartbeats import BrokerHeartbeats
from tidelog.cluster.controller.broker_registrations import feature_ranges
from tidelog.cluster.controller.config_changes import MIN_INSYNC_REPLICAS
from tidelog.cluster.controller.controller_settings import ControllerSettings
from tidelog.cluster.features import METADATA_VERSION
from tidelog.cluster.metadata.image import (
    ConfigResourceType,
    Endpoint,
    MetadataDelta,
    MetadataImage,
)
from tidelog.cluster.metadata.metadata_log import DIRECTORY_NAME, MetadataLog
from tidelog.cluster.metadata.snapshotting import SnapshotOptions
from tidelog.cluster.replication.partition_registry import PartitionRegistry
from tidelog.cluster.replication.waiting import Waiting
from tidelog.errors import TidelogError
from tidelog.promise import Promise
from tidelog.protocol.apis.broker_heartbeat import BrokerHeartbeatRequest
from tidelog.protocol.apis.broker_registration import (
    BrokerRegistrationRequest,
    Feature,
)
from tidelog.protocol.apis.broker_registration import Listener as RegisteredListener
from tidelog.protocol.uuids import random_uuid
from tidelog.security.quotas import ClientQuotas
from tidelog.server.client_metrics import ClientMetrics
from tidelog.server.configuration.config_layers import broker_config_layers
from tidelog.server.configuration.node_config import SETTINGS
from tidelog.server.controller.channel import ControllerChannel
from tidelog.server.controller.controller import Controller
from tidelog.server.coordination.group_coordinator import GroupCoordinator
from tidelog.server.coordination.transaction_coordinator import TransactionCoordinator
from tidelog.server.delayed import DelayedFetch
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
from tidelog.server.network.reactor import Reactor
from tidelog.server.structured_logs import Level, StructuredLog
from tidelog.storage.directories.log_directory import LogDirectoryError
from tidelog.storage.log_store import LogStore
from tidelog.storage.store_options import StoreOptions

if TYPE_CHECKING:
    from tidelog.protocol.schema import Message
    from tidelog.protocol.topic_partition import TopicPartition
    from tidelog.server.configuration.node_config import NodeConfig
    from tidelog.server.handler import Handler
    from tidelog.storage.directories.log_directory import DirectoryState
    from tidelog.storage.log import Log
    from tidelog.storage.recovery import RecoveryProgress
    from tidelog.world import World
    from tidelog.world.network import Address

_PROGRESS_INTERVAL_S = 2.0
_FINISH_S_MAX = 5.0
_FINISH_POLL_S = 0.01


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
        )
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
        self.handlers: dict[int, Handler] = {}
        self._acceptors: list[Acceptor[Address]] = []
        self._local_acceptor: LocalAcceptor | None = None
        self._is_stopping = False
        self._bug: BaseException | None = None

    store: LogStore
    groups: GroupCoordinator
    transactions: TransactionCoordinator
    cleaning: LogCleaning
    metadata: MetadataLog
    local_partitions: LocalPartitions
    controller: ControllerChannel
    controller_settings: ControllerSettings
    cluster_id: str
    broker_epoch: int
    _registration: BrokerRegistrationRequest

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

    # Start

    def start(self) -> None:
        """Open everything and take the ports; serving begins with `run`.

        Raises a TidelogError that says what is the matter; nothing stays open then.
        """
        started_s = self.world.monotonic()
        self._tell_without_effect(self.config.without_effect)
        try:
            self._open()
        except BaseException:
            self._abandon()
            raise
        self.log.info(
            "node_started",
            node_id=self.config.node_id,
            cluster_id=self.cluster_id,
            listeners=",".join(format_address(host, port) for host, port in self.addresses),
            advertised=",".join(self.advertised_addresses),
            partitions=len(self.partitions),
            seconds=round(self.world.monotonic() - started_s, 3),
        )

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
        self.cluster_id = self.store.cluster_id
        first_directory = self.store.directories[0]
        if not first_directory.online:
            raise LogDirectoryError(
                f"{first_directory.path} holds the metadata and cannot be used: "
                f"{first_directory.error}"
            )
        self.metadata = MetadataLog.open(
            first_directory.path / DIRECTORY_NAME,
            node_id=config.node_id,
            directory_id=first_directory.directory_id,
            world=self.world,
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
        self._check_levels()
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
            self.now_ms,
            self.reactor.call_later,
            self.log,
        )
        self.local_partitions = local
        local.claim_logs(self.metadata)
        self._acceptors = []
        for listener in config.parsed_listeners:
            self._acceptors.append(accept_on(listener, config, self.world, self.connections))
        if config.local_reads_enable:
            self._local_acceptor = accept_locally(self.world, self.listeners[0], self.connections)
        self.handlers = load_handlers()
        self.connections.dispatch = Dispatcher(self, self.handlers).dispatch
        self.store.on_directory_failure = lambda state, lost: self._directory_failed(
            local, state, lost
        )
        controller = Controller(
            self.metadata,
            self.controller_settings,
            self.quotas,
            self.world.random,
            heartbeats=BrokerHeartbeats(),
            now_ms=lambda: int(self.world.monotonic() * 1000),
            config_layers=lambda: broker_config_layers(self),
            on_exception=lambda: self.log.exception("controller_failed"),
            on_unclean_election=lambda election: self.log.warning(
                "unclean_leader_election", **election._asdict()
            ),
        )
        controller.activate()
        self.controller = ControllerChannel(controller, local)
        self._register()
        self._tell_overridden_settings()
        self._take_over_settings(self.image)
        local.load(self.image)
        self.metadata.listeners += [local.apply, self._on_metadata]
        self.groups = GroupCoordinator(self)
        self.groups.start()
        self.transactions = TransactionCoordinator(self)
        self.transactions.start()
        local.on_made_late = self._partitions_made_late
        self.cleaning = LogCleaning(self)
        self.cleaning.start()
        self.reactor.turn_end_hooks.append(self._end_turn)
        Maintenance(self).start()
        for acceptor in self._accepting:
            acceptor.start()

    def _check_levels(self) -> None:
        """The levels on disk are what counts; they may be others than those of a first start."""
        config, image = self.config, self.image
        config.check_directories(image.metadata_version)
        chosen = {**config.initial_feature_levels}
        if config.initial_metadata_version is not None:
            chosen[METADATA_VERSION] = config.initial_levels[METADATA_VERSION]
        for name, level in chosen.items():
            if level != image.finalized_level(name):
                self.log.warning(
                    "initial_levels_ignored",
                    feature=name,
                    wanted=level,
                    finalized=image.finalized_level(name),
                )

    def _register(self) -> None:
        """Tell the controller that this node is there and serves."""
        config = self.config
        endpoints = tuple(
            Endpoint(listener.name, listener.advertised_host, listener.advertised_port)
            for listener in self.listeners
        )
        # Every listener serves the controller too.
        self.metadata.set_endpoints(endpoints)
        known = self.image.brokers.get(config.node_id)
        self._registration = BrokerRegistrationRequest(
            broker_id=config.node_id,
            cluster_id=self.cluster_id,
            incarnation_id=random_uuid(self.world.random),
            listeners=[
                RegisteredListener(
                    name=each.name,
                    host=each.host,
                    port=each.port,
                    security_protocol=each.security_protocol,
                )
                for each in endpoints
            ],
            features=[
                Feature(name=name, min_supported_version=lowest, max_supported_version=highest)
                for name, lowest, highest in feature_ranges(config.supported_features)
            ],
            rack=config.broker_rack,
            log_dirs=[state.directory_id for state in self.store.directories if state.online],
            previous_broker_epoch=(
                known.epoch if known is not None and self.store.stopped_cleanly else -1
            ),
        )
        self.broker_epoch = self._ask_now(self._registration).broker_epoch
        self._ask_now(self._heartbeat())

    def _heartbeat(self, offline_log_dirs: Sequence[bytes] = ()) -> BrokerHeartbeatRequest:
        return BrokerHeartbeatRequest(
            broker_id=self.config.node_id,
            broker_epoch=self.broker_epoch,
            current_metadata_offset=self.image.offset,
            offline_log_dirs=list(offline_log_dirs),
        )

    def _ask_now(self, body: Message) -> Any:
        """The controller's answer at a start, when the loop does not turn yet."""
        answer = self.controller.ask(body)
        self.metadata.settle()
        return answer.result()

    def _tell_controller(self, body: Message) -> None:
        def answered(answer: Promise[Any]) -> None:
            if answer.error is not None:
                self.log.error(
                    "controller_refused", request=type(body).__name__, error=answer.error
                )

        self.controller.ask(body).when_done(answered)

    def _tell_overridden_settings(self) -> None:
        """min.insync.replicas is kept for all brokers together."""
        static = self.config.explicit.get(MIN_INSYNC_REPLICAS)
        of_cluster = self.image.cluster_configs().get(MIN_INSYNC_REPLICAS)
        if static not in (None, of_cluster):
            self.log.warning(
                "setting_overridden", setting=MIN_INSYNC_REPLICAS, by_cluster=of_cluster
            )

    def _abandon(self) -> None:
        """Close what a start that failed has opened."""
        for acceptor in self._accepting:
            acceptor.close()
        if hasattr(self, "metadata"):
            self.metadata.close()
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

    def _partitions_made_late(self, image: MetadataImage) -> None:
        self.groups.host.refresh(image)
        self.transactions.host.refresh(image)

    def _high_watermark_of(self, log: Log) -> int:
        partition = self.partitions.get(*log.topic_partition)
        return log.durable_offset if partition is None else partition.high_watermark

    def _log_moved(self, log: Log) -> None:
        self.log.info("log_moved", partition=f"{log.topic_partition}", directory=log.directory)
        partition = self.partitions.get(*log.topic_partition)
        if partition is not None:
            partition.replace_log(log)

    def _broker_config(self, image: MetadataImage) -> dict[str, str]:
        """The broker's settings that hold now, as far as they were set."""
        return self.controller_settings.effective_broker_config(image)

    def _on_metadata(
        self, before: MetadataImage, after: MetadataImage, delta: MetadataDelta
    ) -> None:
        if delta.quotas or any(
            resource.type == ConfigResourceType.BROKER for resource in delta.configs
        ):
            self._take_over_settings(after)
        if METADATA_VERSION in delta.features:
            # A newer level may know something of this broker that the one before did not.
            self._tell_controller(self._registration)

    def _take_over_settings(self, image: MetadataImage) -> None:
        self.quotas.replace(image.client_quotas)
        self.has_quotas = self.quotas.limits_clients
        before = self.config
        dynamic = {**image.cluster_configs(), **image.broker_configs(before.node_id)}
        self.config = self._static_config.changed(dynamic)
        unknown = [name for name in dynamic if name not in SETTINGS]
        self._tell_without_effect([*self.config.without_effect, *unknown])
        self.connections.take_over_limits(self.config)
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
            self._tell_controller(self._heartbeat(offline_log_dirs=offline))

    # Stop

    def request_stop(self) -> None:
        """Shut down cleanly. From any thread and any number of times; returns at once."""
        self.reactor.post(self._begin_stop)

    def crash(self, thread: str, error: BaseException) -> None:
        """End because a background thread has met a bug; from any thread, returns at once.

        What it did not do is left to the next start's recovery, as after a kill.
        """
        self._bug = self._bug or error
        self.log.critical("thread_failed", error, thread=thread)
        self.reactor.post(self._begin_stop)

    def _begin_stop(self) -> None:
        if self._is_stopping:
            return
        self._is_stopping = True
        self.log.info("node_stopping", node_id=self.config.node_id)
        for acceptor in self._accepting:
            acceptor.close()
        for waiter in self.waiting.waiters():
            if isinstance(waiter, DelayedFetch):
                waiter.finish()
        self._stop_when_finished(self.reactor.now + _FINISH_S_MAX)

    def _stop_when_finished(self, deadline: float) -> None:
        """Wait for produce requests that wait for durability, changes of the metadata and answers
        that are on their way."""
        is_busy = (
            self.metrics.delayed_produces
            or self.metadata.has_proposals
            or any(connection.is_answering for connection in self.connections.all.values())
        )
        if is_busy and self.reactor.now < deadline:
            self.reactor.call_later(_FINISH_POLL_S, lambda: self._stop_when_finished(deadline))
            return
        self.connections.close_all("the node stops")
        self.reactor.stop()

    def finish(self) -> None:
        """Write everything down and let go of it: the loop has ended.

        Raises NodeCrashedError when it ended because a background thread has met a bug.
        """
        # Everybody who is told of changes is still there.
        self.metadata.settle()
        self.cleaning.close()
        self.transactions.close()
        self.groups.close()
        self.metadata.close()
        self.store.close(clean=self._bug is None)
        self.reactor.close()
        self.log.info("node_stopped", node_id=self.config.node_id)
        if self._bug is not None:
            raise NodeCrashedError(self._bug) from self._bug


class RecoveryLines:
    """Says how far recovery is when it takes long."""

    def __init__(self, log: StructuredLog, monotonic: Callable[[], float]) -> None:
        self.log = log
        self._monotonic = monotonic
        self._next_line = monotonic() + _PROGRESS_INTERVAL_S

    def tell(self, progress: RecoveryProgress) -> None:
        """Recovery has done one more log."""
        now = self._monotonic()
        if now >= self._next_line:
            self._next_line = now + _PROGRESS_INTERVAL_S
            self.log.info(
                "recovering",
                directory=progress.directory,
                logs=f"{progress.recovered}/{progress.total}",
            )
