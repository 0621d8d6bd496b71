"""The operating system's files: what is missing, and what cannot be looked at."""

from pathlib import Path

import pytest

from tidelog.world.operating_system.files import OsFiles


def test_a_path_that_cannot_be_looked_at_is_not_taken_for_missing(tmp_path: Path) -> None:
    files = OsFiles()
    (tmp_path / "file").write_bytes(b"")
    (tmp_path / "loop").symlink_to("loop")
    assert files.exists(tmp_path)
    assert files.exists(tmp_path / "file")
    assert not files.exists(tmp_path / "missing")
    assert not files.exists(tmp_path / "missing" / "below")
    assert not files.exists(tmp_path / "file" / "below")
    # It stands for every error of a disk: root can open whatever has the wrong permissions.
    with pytest.raises(OSError, match="symbolic links"):
        files.exists(tmp_path / "loop")
