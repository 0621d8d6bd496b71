from __future__ import annotations

from pathlib import Path

import pytest

from tests.storage.log_making import FILES
from tidelog.storage.directories.partition_metadata import FILE_NAME, read_topic_id, write_topic_id
from tidelog.storage.files import CorruptFileError

TOPIC_ID = bytes(range(16))


def test_the_file_has_kafkas_text(tmp_path: Path) -> None:
    write_topic_id(FILES, tmp_path, TOPIC_ID)
    content = (tmp_path / FILE_NAME).read_bytes()
    assert content == b"version: 0\ntopic_id: AAECAwQFBgcICQoLDA0ODw"
    assert read_topic_id(FILES, tmp_path) == TOPIC_ID


def test_without_a_file_there_is_no_topic_id(tmp_path: Path) -> None:
    assert read_topic_id(FILES, tmp_path) is None


@pytest.mark.parametrize("content", [b"", b"version: 1\ntopic_id: x", b"version: 0\ntopic_id: ?"])
def test_damage_is_noticed(tmp_path: Path, content: bytes) -> None:
    (tmp_path / FILE_NAME).write_bytes(content)
    with pytest.raises(CorruptFileError, match=r"partition\.metadata"):
        read_topic_id(FILES, tmp_path)
