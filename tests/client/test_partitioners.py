"""Partitioners: where records go, without a broker."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.partitioner.default import murmur2 as kafka_python_murmur2

from tidelog.client import Message
from tidelog.client.partitioners import (
    HotKeySplitting,
    KeyHash,
    RackAware,
    Random,
    RoundRobin,
    TopicLayout,
    merge_split_keys,
    murmur2,
    read_salt,
)
from tidelog.client.partitioners.key_rates import KeyRates

LAYOUT = TopicLayout("orders", (None,) * 6)
RACKED = TopicLayout("orders", ("a", "b", "a", "c"))


@given(st.binary(max_size=40))
def test_murmur2_agrees_with_another_client(key: bytes) -> None:
    assert murmur2(key) == kafka_python_murmur2(key) & 0xFFFFFFFF


@pytest.mark.parametrize(
    ("key", "expected"),
    [(b"21", -973932308), (b"foobar", -790332482), (b"a-little-bit-long-string", -985981536)],
)
def test_murmur2_gives_the_java_clients_values(key: bytes, expected: int) -> None:
    assert murmur2(key) == expected & 0xFFFFFFFF


def test_round_robin_gives_each_partition_the_same_number() -> None:
    partitioner = RoundRobin()
    counts = Counter(partitioner.choose(LAYOUT, b"same").partition for _ in range(600))
    assert set(counts.values()) == {100}
    assert len(counts) == 6


def test_random_reaches_every_partition() -> None:
    partitioner = Random()
    assert {partitioner.choose(LAYOUT, b"same").partition for _ in range(2000)} == set(range(6))


def test_key_hash_keeps_a_key_in_its_place() -> None:
    partitioner = KeyHash()
    assert len({partitioner.choose(LAYOUT, b"k").partition for _ in range(50)}) == 1


def test_rack_aware_prefers_leaders_in_its_rack() -> None:
    partitioner = RackAware("a")
    counts = Counter(partitioner.choose(RACKED, None).partition for _ in range(100))
    assert counts == {0: 50, 2: 50}


def test_rack_aware_keeps_keys_in_order_across_racks() -> None:
    keyed = {RackAware("a").choose(RACKED, b"k%d" % i).partition for i in range(100)}
    assert keyed == {0, 1, 2, 3}
    near = RackAware("a", keys_too=True)
    assert {near.choose(RACKED, b"k%d" % i).partition for i in range(100)} == {0, 2}


def test_rack_aware_without_a_near_leader_uses_all() -> None:
    partitioner = RackAware("elsewhere")
    assert {partitioner.choose(RACKED, None).partition for _ in range(8)} == {0, 1, 2, 3}


def test_a_hot_key_is_split_and_cold_keys_stay() -> None:
    partitioner = HotKeySplitting(threshold=0.2, ways=3)
    plain = KeyHash()
    hot: Counter[int] = Counter()
    for i in range(3000):
        choice = partitioner.choose(LAYOUT, b"hot")
        hot[choice.partition] += 1
        cold_key = b"cold-%d" % (i % 500)
        assert partitioner.choose(LAYOUT, cold_key) == plain.choose(LAYOUT, cold_key)
    assert len(hot) == 3
    assert min(hot.values()) > 800


def test_two_hot_keys_that_alternate_each_use_all_their_ways() -> None:
    partitioner = HotKeySplitting(threshold=0.2, ways=2)
    seen: dict[bytes, set[int]] = {b"x": set(), b"y": set()}
    for _ in range(500):
        for key, partitions in seen.items():
            partitions.add(partitioner.choose(LAYOUT, key).partition)
    assert all(len(partitions) == 2 for partitions in seen.values())


def test_readers_put_a_split_key_together_again() -> None:
    partitioner = HotKeySplitting(threshold=0.2, ways=4)
    partitions: dict[int, list[Message]] = {}
    for number in range(1000):
        choice = partitioner.choose(LAYOUT, b"hot")
        log = partitions.setdefault(choice.partition, [])
        log.append(
            Message("orders", choice.partition, len(log), 0, b"hot", number, choice.headers, b"hot")
        )
    home = KeyHash().choose(LAYOUT, b"hot").partition
    in_turn = [
        message for p in sorted(partitions, key=lambda p: p != home) for message in partitions[p]
    ]
    merged = merge_split_keys(in_turn)[b"hot"]
    assert [message.value for message in merged] == list(range(1000))
    assert read_salt(in_turn[0].headers) is None
    last = read_salt(merged[-1].headers)
    assert last is not None
    assert last.ways == 4


def test_a_key_cools_down_when_its_records_stop() -> None:
    rates = KeyRates(capacity=10, window_ms=100)
    for now_ms in range(100):
        rates.add("hot", now_ms)
    assert rates.share("hot") == 1.0
    for now_ms in range(100, 400):
        rates.add("other", now_ms)
    assert rates.share("hot") == 0.0


@given(st.lists(st.integers(0, 50), max_size=400), st.integers(1, 20))
def test_key_rates_stay_bounded_and_never_count_too_high(keys: list[int], capacity: int) -> None:
    rates = KeyRates(capacity=capacity, window_ms=10**9)
    for key in keys:
        rates.add(key, 1)
    assert len(rates) <= capacity
    for key, true_count in Counter(keys).items():
        counted = rates.share(key) * len(keys)
        assert counted <= true_count + 1e-6
        assert counted >= true_count - len(keys) / (capacity + 1) - 1e-6


@pytest.mark.parametrize("wrong", [{"threshold": 0.0}, {"threshold": 1.5}, {"ways": 1}])
def test_wrong_settings_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="not"):
        HotKeySplitting(**wrong)  # type: ignore[arg-type]
