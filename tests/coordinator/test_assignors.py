from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from tidelog.coordinator.groups.assignors import ASSIGNORS, Assignment, MemberSubscription

TOPICS = [bytes([i]) * 16 for i in range(5)]

Subscriptions = dict[str, MemberSubscription]


@st.composite
def groups(draw: st.DrawFn, alike: bool = False) -> tuple[Subscriptions, dict[bytes, int]]:
    counts = {topic: draw(st.integers(1, 9)) for topic in TOPICS[: draw(st.integers(1, 5))]}
    names = [f"m{i}" for i in range(draw(st.integers(1, 8)))]
    subsets = st.frozensets(st.sampled_from(sorted(counts)), min_size=1)
    shared = draw(subsets)
    members = {
        name: MemberSubscription(
            shared if alike else draw(subsets), draw(st.sampled_from([None, f"i-{name}"]))
        )
        for name in names
    }
    return members, counts


def owners(result: dict[str, Assignment]) -> dict[tuple[bytes, int], str]:
    found: dict[tuple[bytes, int], str] = {}
    for member, assignment in result.items():
        for topic, partitions in assignment.items():
            for index in partitions:
                assert (topic, index) not in found, "two owners"
                found[topic, index] = member
    return found


def check_complete(
    members: Subscriptions, counts: dict[bytes, int], result: dict[str, Assignment]
) -> dict[tuple[bytes, int], str]:
    found = owners(result)
    wanted = {
        (topic, index)
        for topic, count in counts.items()
        for index in range(count)
        if any(topic in member.topic_ids for member in members.values())
    }
    assert found.keys() == wanted
    assert all(topic in members[member].topic_ids for (topic, _), member in found.items())
    assert result.keys() == members.keys()
    return found


@given(groups(), st.sampled_from(sorted(ASSIGNORS)))
def test_every_partition_has_one_owner_that_subscribes(
    group: tuple[Subscriptions, dict[bytes, int]], name: str
) -> None:
    members, counts = group
    result = ASSIGNORS[name](members, counts, {})
    check_complete(members, counts, result)
    assert ASSIGNORS[name](members, counts, result) == result, "a second run moves nothing"


@given(groups(alike=True))
def test_uniform_is_even_when_all_want_the_same(
    group: tuple[Subscriptions, dict[bytes, int]],
) -> None:
    members, counts = group
    result = ASSIGNORS["uniform"](members, counts, {})
    loads = [sum(map(len, assignment.values())) for assignment in result.values()]
    assert max(loads) - min(loads) <= 1


@given(groups(alike=True), st.data())
def test_uniform_moves_no_more_than_it_must(
    group: tuple[Subscriptions, dict[bytes, int]], data: st.DataObject
) -> None:
    members, counts = group
    before = owners(ASSIGNORS["uniform"](members, counts, {}))
    current = ASSIGNORS["uniform"](members, counts, {})
    leaving = data.draw(st.sampled_from([None, *sorted(members)]))
    after_members = {m: s for m, s in members.items() if m != leaving}
    after_members["new"] = MemberSubscription(next(iter(members.values())).topic_ids)
    result = ASSIGNORS["uniform"](after_members, counts, current)
    after = check_complete(after_members, counts, result)
    share = -(-len(after) // len(after_members))
    kept = Counter(member for partition, member in before.items() if member in after_members)
    moved = sum(before[p] != member for p, member in after.items() if before[p] in after_members)
    free = sum(before[p] not in after_members for p in after)
    must_move = sum(max(0, count - share) for count in kept.values())
    # The newcomer is filled from free partitions first; whatever else it gets has to move.
    assert moved <= max(must_move, len(after) // len(after_members) - free) + len(kept)


@given(groups(), groups())
def test_uniform_leaves_no_pair_that_could_be_evened_out(
    group: tuple[Subscriptions, dict[bytes, int]],
    earlier: tuple[Subscriptions, dict[bytes, int]],
) -> None:
    members, counts = group
    current = ASSIGNORS["uniform"](*earlier, {})
    result = ASSIGNORS["uniform"](members, counts, current)
    found = check_complete(members, counts, result)
    loads = Counter(found.values())
    for (topic, _), owner in found.items():
        for other, member in members.items():
            if topic in member.topic_ids:
                assert loads[owner] - loads[other] <= 1


def test_range_cuts_topics_alike_and_puts_static_members_first() -> None:
    both = frozenset(TOPICS[:2])
    members = {
        "z": MemberSubscription(both, "static"),
        "a": MemberSubscription(both),
        "b": MemberSubscription(both),
    }
    result = ASSIGNORS["range"](members, {TOPICS[0]: 7, TOPICS[1]: 7}, {})
    cut = {"z": {0, 1, 2}, "a": {3, 4}, "b": {5, 6}}
    assert result == {m: {t: frozenset(p) for t in TOPICS[:2]} for m, p in cut.items()}


def test_no_members_and_no_topics_are_no_problem() -> None:
    for assign in ASSIGNORS.values():
        assert assign({}, {TOPICS[0]: 3}, {}) == {}
        assert assign({"m": MemberSubscription(frozenset())}, {}, {}) == {"m": {}}
