"""Ids and their text."""

from random import Random

import pytest

from tidelog.protocol.uuids import ZERO_UUID, format_uuid, parse_uuid, random_uuid


def test_text_is_the_form_of_kafkas_tools() -> None:
    assert format_uuid(ZERO_UUID) == "AAAAAAAAAAAAAAAAAAAAAA"
    assert format_uuid(bytes(range(16))) == "AAECAwQFBgcICQoLDA0ODw"
    assert parse_uuid("AAECAwQFBgcICQoLDA0ODw") == bytes(range(16))


def test_random_ids_differ_round_trip_and_never_look_like_a_flag() -> None:
    ids = {random_uuid(Random()) for _ in range(2000)}
    assert len(ids) == 2000
    for uuid in ids:
        text = format_uuid(uuid)
        assert len(text) == 22
        assert not text.startswith("-")
        assert parse_uuid(text) == uuid


@pytest.mark.parametrize("text", ["", "short", "AAECAwQFBgcICQoLDA0OD!", "A" * 44, "äöü"])
def test_other_text_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="id"):
        parse_uuid(text)
