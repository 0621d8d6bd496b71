"""Which faults a seed has beside those of the network, how often, and on what kind of store."""

from __future__ import annotations

from dataclasses import dataclass, fields
from random import Random

from tidelog.storage.store_options import StoreOptions


@dataclass(slots=True)
class FaultOptions:
    """Drawn from the seed, and told when it fails."""

    log_directories: int
    journal_file_bytes: int
    direct_sync_bytes: int
    checkpoint_journal_bytes: int
    """So much, or so little, that a seed of a few seconds sees what takes a node hours."""
    full_disks: int
    """Times at which the disk has no more room for a while."""
    write_errors: int
    sync_errors: int
    read_errors: int
    """Each strikes one operation of the disk, once."""
    interrupted_stops: int
    """Clean stops under load in which the power goes."""
    cut_starts: float
    killed_starts: float
    """How likely the power goes, or the process is killed, in the middle of a start."""
    rude_clients: int
    """Clients that half-close, vanish without a word, or do not read."""
    late_lookups: float
    failed_lookups: float
    """How likely the name of a host is looked up for seconds, or not found."""

    @classmethod
    def draw(cls, random: Random) -> FaultOptions:
        has_errors = random.random() < 0.5
        return cls(
            log_directories=random.choice((1, 1, 2)),
            journal_file_bytes=random.choice((16 << 10, 64 << 10, 256 << 10)),
            direct_sync_bytes=random.choice((400, 4000, 256 << 10, 256 << 10)),
            checkpoint_journal_bytes=random.choice((2_000, 20_000, 1 << 20)),
            full_disks=random.choice((0, 0, 0, 1, 2)),
            write_errors=random.choice((0, 0, 1)) if has_errors else 0,
            sync_errors=random.choice((0, 1, 3)) if has_errors else 0,
            read_errors=random.choice((0, 0, 1)) if has_errors else 0,
            interrupted_stops=random.choice((0, 0, 0, 0, 1)),
            cut_starts=random.choice((0.0, 0.0, 0.5)),
            killed_starts=random.choice((0.0, 0.0, 0.5)),
            rude_clients=random.choice((0, 0, 1, 2)),
            late_lookups=random.choice((0.0, 0.0, 0.1)),
            failed_lookups=random.choice((0.0, 0.0, 0.2)),
        )

    @property
    def store_options(self) -> StoreOptions:
        return StoreOptions(
            journal_file_bytes=self.journal_file_bytes,
            journal_first_file_bytes=self.journal_file_bytes,
            direct_sync_bytes=self.direct_sync_bytes,
            checkpoint_journal_bytes=self.checkpoint_journal_bytes,
        )

    def __str__(self) -> str:
        return ", ".join(
            f"{each.name} {value:g}" for each in fields(self) if (value := getattr(self, each.name))
        )
