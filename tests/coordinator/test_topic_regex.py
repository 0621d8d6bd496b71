import re
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.coordinator.groups.topic_regex import ALPHABET, InvalidTopicRegex, TopicRegex

CHARACTERS = st.sampled_from("abcAB01._-")


def expressions() -> st.SearchStrategy[str]:
    atoms = st.one_of(
        CHARACTERS.map(re.escape),
        st.sampled_from([".", r"\d", r"\w", "[a-c]", "[^a]", "[-a.]", r"\.", "^", "$"]),
    )
    return st.recursive(
        atoms,
        lambda inner: st.one_of(
            st.tuples(inner, inner).map("".join),
            st.tuples(inner, inner).map(lambda pair: f"(?:{pair[0]}|{pair[1]})"),
            st.tuples(inner, st.sampled_from(["*", "+", "?", "{2}", "{0,2}", "{1,}"])).map(
                lambda pair: f"(?:{pair[0]}){pair[1]}"
            ),
        ),
        max_leaves=6,
    )


@given(expressions(), st.lists(st.text(CHARACTERS, max_size=6), max_size=8))
def test_agrees_with_python_on_what_both_know(expression: str, names: list[str]) -> None:
    ours = TopicRegex(expression)
    theirs = re.compile(f"(?:{expression})\\Z")
    for name in names:
        assert ours.matches(name) == bool(theirs.match(name)), (expression, name)


@pytest.mark.parametrize(
    ("expression", "name"),
    [
        ("orders.*", "orders-eu"),
        ("^orders", "orders"),
        ("(^a.*)|(^b.*)", "b7"),
        ("(?i)Orders", "ORDERS"),
        ("(?i:o)rders", "Orders"),
        (r"\Qa.b\E", "a.b"),
        ("[[:alpha:]]+[[:digit:]]", "abc1"),
        ("(?P<region>eu|us)-x", "us-x"),
        ("(?<region>eu|us)-x", "eu-x"),
        (r"a\x2db", "a-b"),
        (r"\Aab\z", "ab"),
        ("[]a]", "a"),
        ("a{,2}", "a{,2}"[:0] or "a{,2}"),
    ],
)
def test_knows_the_syntax_of_re2(expression: str, name: str) -> None:
    assert TopicRegex(expression).matches(name)
    assert not TopicRegex(expression).matches("something.else")


@pytest.mark.parametrize(
    "expression",
    [
        "(",
        ")",
        "[a",
        "a**",
        "*a",
        "a{1001}",
        "a{3,2}",
        "(?=a)a",
        "(?<!a)b",
        r"(a)\1",
        r"\bword",
        "a++",
        "[b-a]",
        "[[:nope:]]",
        "((a{100}){100}){100}",
        "(" * 300 + ")" * 300,
        "\\",
        r"\x4",
        "(?Z)a",
    ],
)
def test_refuses_what_re2_does_not_have(expression: str) -> None:
    with pytest.raises(InvalidTopicRegex):
        TopicRegex(expression)


def test_hostile_expressions_take_linear_time() -> None:
    started = time.monotonic()
    for expression in ("(a+)+b", "(a|a)*b", "(a*)*b", "([a-c]*)*d"):
        assert not TopicRegex(expression).matches("a" * 249)
    assert time.monotonic() - started < 10, "Python's own matcher would take years"


def test_a_dot_is_any_letter_of_a_topic_name() -> None:
    dot = TopicRegex(".")
    assert all(dot.matches(letter) for letter in ALPHABET)
