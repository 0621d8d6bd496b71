"""What the loop thread hands to the journal's writer: the items of a group, and what comes back."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, NamedTuple, final

from tidelog.storage.files import OpenFile
from tidelog.storage.journal.format import FrameKind

if TYPE_CHECKING:
    from tidelog.storage.log import Log


class JournaledLog:
    """What the journal knows of one log.

    `generation` counts truncations: an append of an older one must not be reported as durable.
    """

    __slots__ = (
        "directory_synced_for",
        "end_offset",
        "generation",
        "identity_synced",
        "initial_offsets",
        "journaled",
        "log",
        "removed",
        "sync_lock",
        "topic",
        "truncated",
        "unsynced",
    )

    def __init__(
        self, log: Log, identity_synced: bool, sync_lock: AbstractContextManager[object]
    ) -> None:
        self.log = log
        self.topic = log.topic_partition.topic.encode()
        self.identity_synced = identity_synced  # that the log exists, and of which topic it is
        # The kernel tells of a failed write-back only once: of two syncs of a file side by side
        # one may succeed although the data is lost. Under the lock the second knows of the first.
        self.sync_lock = sync_lock
        # The loop thread's.
        self.generation = 0
        self.end_offset = log.log_end_offset
        self.journaled = False
        self.removed = False
        self.initial_offsets = (log.log_start_offset, log.log_end_offset)
        # The writer's.
        self.unsynced: dict[str, OpenFile] = {}  # by path
        self.directory_synced_for: OpenFile | None = None
        self.truncated = False

    @property
    def has_changed(self) -> bool:
        offsets = (self.log.log_start_offset, self.log.log_end_offset)
        return self.generation > 0 or not self.identity_synced or offsets != self.initial_offsets


@final
class Append:
    """Batches that wait to become durable, and the segment file that holds them."""

    __slots__ = ("batches", "file", "generation", "leader_epoch", "next_offset", "offset", "state")

    def __init__(
        self,
        state: JournaledLog,
        file: OpenFile,
        batches: memoryview,
        offset: int,
        next_offset: int,
        leader_epoch: int,
    ) -> None:
        self.state = state
        self.generation = state.generation
        self.file = file
        self.batches = batches
        self.offset = offset
        self.next_offset = next_offset
        self.leader_epoch = leader_epoch


@final
class Mark:
    """A frame without batches; `done` hears when it is on disk, with None or what went wrong.

    `cut_file` is the segment file that a truncation shortens.
    """

    __slots__ = ("cut_file", "done", "kind", "offset", "state")

    def __init__(
        self,
        kind: FrameKind,
        state: JournaledLog | None,
        offset: int,
        done: Callable[[OSError | None], None] | None = None,
        cut_file: OpenFile | None = None,
    ) -> None:
        self.cut_file = cut_file
        self.kind = kind
        self.state = state
        self.offset = offset
        self.done = done


@final
class Fence:
    """Hears the LSN that lies between all that was handed over before it and all that comes."""

    __slots__ = ("passed",)

    def __init__(self, passed: Callable[[int], None]) -> None:
        self.passed = passed


@final
class Sync:
    """Segment files of a log to sync directly, because the journal does not hold what they do."""

    __slots__ = ("files", "generation", "next_offset", "state")

    def __init__(self, state: JournaledLog, files: Sequence[OpenFile], next_offset: int) -> None:
        self.state = state
        self.generation = state.generation
        self.files = files
        self.next_offset = next_offset


@final
class Synced:
    """A checkpoint synced these files of closed segments: they need no sync any more."""

    __slots__ = ("generation", "paths", "state")

    def __init__(self, state: JournaledLog, paths: Sequence[str], generation: int) -> None:
        self.state = state
        self.paths = paths
        self.generation = generation


Item = Append | Mark | Fence | Sync | Synced
# Log, generation, and the offset below which the log is durable.
Completion = tuple[JournaledLog, int, int]


class WrittenGroup(NamedTuple):
    """What the loop thread has to do about a group."""

    completions: list[Completion]
    calls: list[Callable[[], None]]
    """Tell those who wait for marks and fences."""
