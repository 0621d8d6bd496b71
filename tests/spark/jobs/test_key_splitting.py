"""The model of splitting, against the partitioner that splits."""

import random
from collections import Counter

import pytest

from tidelog.client.partitioners import HotKeySplitting, TopicLayout
from tidelog.client.partitioners.key_hash import key_partition
from tidelog.spark.jobs.key_splitting import KeyLoad, skew, split_load


@pytest.mark.parametrize("ways", [2, 3, 4, 8])
def test_the_model_gives_what_the_partitioner_does(ways: int) -> None:
    count = 6
    layout = TopicLayout("t", (None,) * count)
    chance = random.Random(3)
    keys = [
        b"hot" if chance.random() < 0.6 else b"k%d" % chance.randrange(200) for _ in range(5000)
    ]
    before = Counter(key_partition(key, count) for key in keys)
    home = key_partition(b"hot", count)
    expected = split_load(
        [before[at] for at in range(count)], [KeyLoad(b"hot", {home: keys.count(b"hot")})], ways
    )
    partitioner = HotKeySplitting(threshold=0.1, ways=ways)
    real = Counter(partitioner.choose(layout, key).partition for key in keys)
    # Before it has seen enough to judge, it splits nothing.
    for at in range(count):
        assert abs(real[at] - expected[at]) <= 100
    assert sum(expected) == 5000


def test_a_key_leaves_the_partitions_it_was_in() -> None:
    home = key_partition(b"k", 3)
    after = split_load([10, 10, 10], [KeyLoad(b"k", {0: 5, 1: 2})], 2)
    expected = [5, 8, 10]
    expected[home] += 4
    expected[(home + 1) % 3] += 3
    assert after == expected


def test_skew_is_the_heaviest_by_the_mean() -> None:
    assert skew([10, 10, 10]) == 1
    assert skew([30, 0, 0]) == 3
    assert skew([0, 0]) == 1
