"""What the raw client sends."""

import itertools

import pytest

from benchmarks import raw


def test_batches_made_on_a_slow_machine_have_the_same_length(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    at_once = raw.bulk_batch(10_000, 100)
    passing = itertools.count(1_700_000_000_000, 50)
    monkeypatch.setattr(raw, "_now_ms", lambda: next(passing))
    assert len(raw.bulk_batch(10_000, 100)) == len(at_once)
