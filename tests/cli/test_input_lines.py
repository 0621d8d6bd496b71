"""Lines of an input that may pause."""

import os
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.cli import input_lines
from tidelog.cli.input_lines import LineTooLong, read_lines


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    reader, writer = os.pipe()
    yield reader, writer
    os.close(reader)


def lines_of(text: bytes) -> list[bytes]:
    reader, writer = os.pipe()
    os.write(writer, text)
    os.close(writer)
    try:
        return list(read_lines(reader, lambda: None))
    finally:
        os.close(reader)


@given(st.lists(st.binary().filter(lambda line: b"\n" not in line)))
def test_lines_are_what_stands_before_each_end(lines: list[bytes]) -> None:
    assert lines_of(b"".join(line + b"\n" for line in lines)) == lines


def test_the_last_line_needs_no_end() -> None:
    assert lines_of(b"one\n\ntwo") == [b"one", b"", b"two"]
    assert lines_of(b"") == []


def test_a_line_may_come_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(input_lines, "_READ_BYTES", 3)
    assert lines_of(b"1234567\n12\n\n1234") == [b"1234567", b"12", b"", b"1234"]


def test_a_pause_comes_after_the_lines_so_far(pipe: tuple[int, int]) -> None:
    reader, writer = pipe
    happened: list[str] = []

    def on_pause() -> None:
        happened.append("pause")
        if happened.count("pause") == 1:
            os.write(writer, b"three\n")
        else:
            os.close(writer)

    os.write(writer, b"one\ntwo\n")
    for line in read_lines(reader, on_pause):
        happened.append(line.decode())
    assert happened == ["one", "two", "pause", "three", "pause"]


def test_a_line_without_an_end_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(input_lines, "LINE_BYTES_MAX", 1000)
    monkeypatch.setattr(input_lines, "_READ_BYTES", 100)
    with pytest.raises(LineTooLong, match="more than 1000 bytes"):
        lines_of(bytes(2000))
