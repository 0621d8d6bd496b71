from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.storage.segment.file_names import SEGMENT_SUFFIXES, offset_of_file, segment_path


@given(base_offset=st.integers(0, 2**63 - 1), suffix=st.sampled_from(SEGMENT_SUFFIXES))
def test_a_file_tells_the_offset_it_is_named_by(base_offset: int, suffix: str) -> None:
    path = segment_path(Path("orders-0"), base_offset, suffix)
    assert path.name.endswith(suffix)
    assert offset_of_file(path.name) == base_offset


@pytest.mark.parametrize(
    "name", ["", "partition.metadata", "123.log", "leader-epoch-checkpoint", "-" * 20 + ".log"]
)
def test_other_files_have_no_offset(name: str) -> None:
    assert offset_of_file(name) == -1
