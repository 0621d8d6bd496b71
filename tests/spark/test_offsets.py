"""Offsets in JSON, as users and checkpoints have them."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.protocol.topic_partition import TopicPartition
from tidelog.spark.errors import OptionError
from tidelog.spark.offsets import (
    OffsetRange,
    offsets_from_json,
    offsets_to_json,
    parse_offsets,
    parse_partitions,
)

names = st.builds(TopicPartition, st.text("abc.-_", min_size=1), st.integers(0, 300))


@given(st.dictionaries(names, st.integers(0, 2**63 - 1)))
def test_offsets_come_back_from_a_checkpoint(offsets: dict[TopicPartition, int]) -> None:
    text = json.dumps(offsets_to_json(offsets))
    assert offsets_from_json(json.loads(text)) == offsets
    # Spark compares texts to see whether there is something new.
    backwards = dict(reversed(offsets.items()))
    assert json.dumps(offsets_to_json(backwards)) == text


def test_checkpoints_have_the_shape_of_sparks_kafka_source() -> None:
    offsets = {TopicPartition("b", 0): 3, TopicPartition("a", 10): 2, TopicPartition("a", 9): 1}
    assert json.dumps(offsets_to_json(offsets)) == '{"a": {"9": 1, "10": 2}, "b": {"0": 3}}'


def test_offsets_of_an_option() -> None:
    assert parse_offsets("startingOffsets", '{"a":{"0":23,"1":-2}}', -2) == {
        TopicPartition("a", 0): 23,
        TopicPartition("a", 1): -2,
    }


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("{", "Expecting"),
        ("[]", "no JSON object"),
        ("{}", "names no partition"),
        ('{"a": 3}', "'a' has no object"),
        ('{"a": {"x": 3}}', "'x' is no partition"),
        ('{"a": {"-1": 3}}', "'-1' is no partition"),
        ('{"a": {"0": "3"}}', "'3' for a-0"),
        ('{"a": {"0": true}}', "True for a-0"),
        ('{"a": {"0": -3}}', "-3 for a-0"),
    ],
)
def test_what_is_wrong_with_offsets_is_named(text: str, problem: str) -> None:
    with pytest.raises(OptionError, match=problem) as raised:
        parse_offsets("startingOffsets", text, -2)
    assert "startingOffsets" in str(raised.value)


@pytest.mark.parametrize("text", ["[1]", '{"a": {}}', '{"a": ["0"]}', '{"a": [-1]}', '{"a": []}'])
def test_what_is_wrong_with_partitions_is_named(text: str) -> None:
    with pytest.raises(OptionError, match="option assign="):
        parse_partitions("assign", text)


def test_a_range_knows_its_size_and_partition() -> None:
    wanted = OffsetRange("a", 3, 10, 25)
    assert wanted.size == 15
    assert wanted.name == TopicPartition("a", 3)
