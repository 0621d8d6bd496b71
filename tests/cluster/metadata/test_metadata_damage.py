"""Damage of the metadata log is told from an end that a power cut tore, by who votes."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from tidelog.cluster.metadata.metadata_damage import refuse_damage
from tidelog.protocol.control_records import Voter
from tidelog.protocol.records import Record, encode_batch
from tidelog.storage.files import CorruptFileError
from tidelog.storage.segment.file_names import LOG_SUFFIX
from tidelog.world.operating_system.files import OsFiles

NODE_ID = 3


@pytest.fixture
def torn(tmp_path: Path) -> Path:
    """A log of four batches of which the second has lost a part."""
    batches = [
        encode_batch([Record(0, 1, None, b"decision %d" % offset)], base_offset=offset)
        for offset in range(4)
    ]
    batches[1][-4:] = bytes(4)
    (tmp_path / f"{0:020d}{LOG_SUFFIX}").write_bytes(b"".join(batches))
    return tmp_path


@pytest.mark.parametrize(
    ("named", "configured"),
    [
        pytest.param((1, 2, 3), (), id="the log names others"),
        pytest.param((), (1, 2, 3), id="the configuration names others"),
        pytest.param((), (), id="nobody is named: it has joined, and lost who votes"),
        pytest.param((1,), (), id="another one is the only voter"),
    ],
)
def test_what_others_have_is_no_damage(
    torn: Path, named: Sequence[int], configured: Sequence[int]
) -> None:
    voters = [Voter(voter_id=voter_id) for voter_id in named]
    refuse_damage(OsFiles(), torn, 0, voters, NODE_ID, configured)


@pytest.mark.parametrize(("named", "configured"), [((NODE_ID,), ()), ((), (NODE_ID,))])
def test_what_nobody_else_has_is_refused(
    torn: Path, named: Sequence[int], configured: Sequence[int]
) -> None:
    voters = [Voter(voter_id=voter_id) for voter_id in named]
    with pytest.raises(CorruptFileError, match="was acknowledged"):
        refuse_damage(OsFiles(), torn, 0, voters, NODE_ID, configured)
