"""What the controller knows of brokers only from their heartbeats.

This is soft state: it is in no record, and a controller that takes over begins without it. A broker
that was not fenced then is taken to have just been heard of, or it would never be fenced if it had
died with the controller before (KAFKA-13841). Whether a broker is fenced or shutting down is in the
image; here is when it was last heard of, how far its image is, up to which offset the others'
images have to be before it may stop, and which of its log directories are full.
"""

from __future__ import annotations

from collections.abc import Collection

from tidelog.cluster.metadata.image import BrokerImage, MetadataImage, PartitionImage

SESSION_TIMEOUT_MS = 9000  # Kafka's default of broker.session.timeout.ms
UNKNOWN_OFFSET = -1
_NO_BROKER_WAITS = (1 << 63) - 1


class _Session:
    """One incarnation of a broker, known by its epoch."""

    __slots__ = (
        "controlled_shutdown_offset",
        "epoch",
        "full_log_dirs",
        "is_connected",
        "last_contact_ms",
        "metadata_offset",
    )

    def __init__(self, epoch: int) -> None:
        self.epoch = epoch
        self.is_connected = False  # the connection of its last heartbeat to this controller stands
        self.last_contact_ms: int | None = None  # None: not heard of, so there is no session
        self.metadata_offset = UNKNOWN_OFFSET
        self.full_log_dirs: Collection[bytes] = ()
        self.controlled_shutdown_offset: int | None = None


class BrokerHeartbeats:
    """The sessions of all brokers. A broker's session goes with its epoch: an older one's heartbeat
    does not keep a newer one alive."""

    def __init__(self, session_timeout_ms: int = SESSION_TIMEOUT_MS) -> None:
        self.session_timeout_ms = session_timeout_ms
        self._sessions: dict[int, _Session] = {}

    def activate(
        self, image: MetadataImage, now_ms: int, dead_broker_ids: Collection[int] = ()
    ) -> None:
        """Begins with what the image says, when this controller takes over.

        `dead_broker_ids` are brokers that need not be waited for: the incarnation that the image
        has of this node's own broker, if that was an earlier process.
        """
        self._sessions = {}
        for broker in image.brokers.values():
            session = self._session(broker.broker_id, broker.epoch)
            if not broker.fenced and broker.broker_id not in dead_broker_ids:
                session.last_contact_ms = now_ms

    def _session(self, broker_id: int, epoch: int) -> _Session:
        session = self._sessions.get(broker_id)
        if session is None or session.epoch != epoch:
            session = self._sessions[broker_id] = _Session(epoch)
        return session

    def heard_of(
        self,
        broker: BrokerImage,
        metadata_offset: int,
        now_ms: int,
        full_log_dirs: Collection[bytes] = (),
    ) -> None:
        """A heartbeat of this incarnation has come."""
        session = self._session(broker.broker_id, broker.epoch)
        session.last_contact_ms = now_ms
        session.metadata_offset = metadata_offset
        session.full_log_dirs = full_log_dirs
        session.is_connected = True

    def lacks_room(self, partition: PartitionImage, broker: BrokerImage) -> bool:
        """Whether the broker has said that the directory of its replica is full.

        While it is not known where the replica is, it may be in any that is full: to let another
        lead without need does no harm.
        """
        session = self._sessions.get(broker.broker_id)
        if session is None or session.epoch != broker.epoch or not session.full_log_dirs:
            return False
        directory = partition.directory_of(broker.broker_id)
        if directory is not None and directory in broker.log_dirs:
            return directory in session.full_log_dirs
        return True

    def disconnected(self, broker_id: int, epoch: int) -> None:
        """The connection over which this incarnation sent its heartbeats has closed."""
        session = self._sessions.get(broker_id)
        if session is not None and session.epoch == epoch:
            session.is_connected = False

    def may_be_replaced(self, broker: BrokerImage, now_ms: int) -> bool:
        """Whether another incarnation may register in its place: it has no session, or nothing is
        heard of it but that its connection has closed. One that lives is heard of again soon."""
        session = self._sessions.get(broker.broker_id)
        return not self.has_session(broker, now_ms) or (
            session is not None and not session.is_connected
        )

    def remove(self, broker_id: int) -> None:
        """The broker is not registered any more."""
        self._sessions.pop(broker_id, None)

    def end_session(self, broker_id: int) -> None:
        """The broker is known to be gone, or fenced; it begins again with its next heartbeat."""
        session = self._sessions.get(broker_id)
        if session is not None:
            session.last_contact_ms = None
            session.controlled_shutdown_offset = None

    def has_session(self, broker: BrokerImage, now_ms: int) -> bool:
        """Whether this incarnation has been heard of within the session timeout."""
        session = self._sessions.get(broker.broker_id)
        return (
            session is not None and session.epoch == broker.epoch and self._lives(session, now_ms)
        )

    def _lives(self, session: _Session, now_ms: int) -> bool:
        last_contact_ms = session.last_contact_ms
        return last_contact_ms is not None and now_ms - last_contact_ms <= self.session_timeout_ms

    def expired(self, image: MetadataImage, now_ms: int) -> int | None:
        """A broker that serves by the image and has not been heard of for too long.

        One at a time: the next is to be decided on the image without this one.
        """
        for broker in image.brokers.values():
            if not broker.fenced and not self.has_session(broker, now_ms):
                return broker.broker_id
        return None

    def next_expiry_ms(self, image: MetadataImage) -> int | None:
        """When `expired` is to be asked next if nobody is heard of before; None for never."""
        times = [
            session.last_contact_ms
            for broker in image.brokers.values()
            if not broker.fenced
            and (session := self._sessions.get(broker.broker_id)) is not None
            and session.last_contact_ms is not None
        ]
        return min(times) + self.session_timeout_ms + 1 if times else None

    # Controlled shutdown

    def begin_shutdown(self, broker: BrokerImage, offset: int) -> None:
        """The broker may stop when active brokers' images have `offset`; the first one counts."""
        session = self._session(broker.broker_id, broker.epoch)
        if session.controlled_shutdown_offset is None:
            session.controlled_shutdown_offset = offset

    def shutdown_offset(self, broker: BrokerImage) -> int | None:
        """What the others have to know before this broker may stop; None before that is decided."""
        session = self._sessions.get(broker.broker_id)
        if session is None or session.epoch != broker.epoch:
            return None
        return session.controlled_shutdown_offset

    def lowest_active_offset(self, image: MetadataImage) -> int:
        """How far every active broker's image is at least."""
        offsets = [
            session.metadata_offset
            if (session := self._sessions.get(broker.broker_id)) is not None
            and session.epoch == broker.epoch
            else UNKNOWN_OFFSET
            for broker in image.brokers.values()
            if broker.is_active
        ]
        return min(offsets, default=_NO_BROKER_WAITS)
