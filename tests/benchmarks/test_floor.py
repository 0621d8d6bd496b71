"""The bare loops answer the client of `benchmarks.raw` as a broker does."""

from pathlib import Path

import pytest

from benchmarks.floor import BareLoops
from benchmarks.raw import bulk_batch, fetch_bulk, produce_bulk
from benchmarks.servers import wait_until_serving
from benchmarks.workloads import FETCH_BYTES


def test_what_was_produced_is_on_disk_and_is_fetched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(Path(__file__).parents[2])
    loops = BareLoops(tmp_path)
    loops.start()
    try:
        wait_until_serving(loops)
        written = produce_bulk("127.0.0.1", loops.port, "floor", 1, size_bytes_total=8_000_000)
        read = fetch_bulk(
            "127.0.0.1",
            loops.port,
            "floor",
            1,
            size_bytes_total=7_000_000,
            partition_max_bytes=FETCH_BYTES,
        )
    finally:
        loops.stop()
    batch = bulk_batch()
    stored = (tmp_path / "records").read_bytes()
    # One batch more than was counted: the client asks once how long an answer is.
    assert len(stored) == (written.requests + 1) * len(batch)
    assert stored[61:1000] == batch[61:1000]
    assert read.requests == 2
    assert 7_000_000 <= read.size_bytes < 9_000_000
