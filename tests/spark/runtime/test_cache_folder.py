"""A folder that many processes may write at the same time."""

import pwd
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tidelog.spark.runtime.cache_folder import cache_folder, written_once


def test_the_folder_is_where_caches_are(tmp_path: Path) -> None:
    found = cache_folder({"XDG_CACHE_HOME": str(tmp_path)})
    assert found == tmp_path / "tidelog" / "spark"
    assert found.is_dir()


def test_a_home_that_cannot_be_written_is_no_hindrance(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("in the way")
    found = cache_folder({"XDG_CACHE_HOME": str(blocked)})
    assert found.is_dir()
    assert blocked not in found.parents


def test_a_user_without_a_home_is_no_hindrance(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def unknown(uid: int) -> pwd.struct_passwd:
        raise KeyError(uid)

    # As in a container that runs with any user id.
    monkeypatch.delenv("HOME", raising=False)
    monkeypatch.setattr(pwd, "getpwuid", unknown)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    found = cache_folder({})
    assert found.is_dir()
    assert found.parent == tmp_path


def test_the_first_of_many_writers_stays(tmp_path: Path) -> None:
    target = tmp_path / "made"

    def write(number: int) -> None:
        with written_once(target) as made:
            (made / "first").write_text(str(number))
            (made / "second").write_text(str(number))

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(write, range(40)))
    assert (target / "first").read_text() == (target / "second").read_text()
    assert [each.name for each in tmp_path.iterdir()] == ["made"]


def test_a_writer_that_fails_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(ValueError), written_once(tmp_path / "made") as made:
        (made / "half").write_text("")
        raise ValueError
    assert not list(tmp_path.iterdir())
