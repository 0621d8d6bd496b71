import re
import subprocess
import sys
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.coordinator.regex import InvalidRegex, Regex

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
    ours = Regex(expression)
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
        ("a{,2}", "a{,2}"),
        (r"\borders\b.*", "orders-eu"),
        (r"\pL+-\d", "größe-1"),
        ("a|ab", "ab"),
    ],
)
def test_knows_the_syntax_of_re2(expression: str, name: str) -> None:
    assert Regex(expression).matches(name)
    assert not Regex(expression).matches("something.else")


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
        "a++",
        "[b-a]",
        "[[:nope:]]",
        "((a{100}){100}){100}",
        "(.{0,1000}){3}",
        "(?:x{900}y{900})" * 100,
        "\\",
        r"\x4",
        "(?Z)a",
    ],
)
def test_refuses_what_re2_does_not_have(expression: str) -> None:
    with pytest.raises(InvalidRegex):
        Regex(expression)


def test_hostile_expressions_take_linear_time() -> None:
    started = time.monotonic()
    for expression in ("(a+)+b", "(a|a)*b", "(a*)*b", "([a-c]*)*d"):
        assert not Regex(expression).matches("a" * 249)
    assert time.monotonic() - started < 10, "Python's own matcher would take years"


def test_the_reason_is_told() -> None:
    with pytest.raises(InvalidRegex, match=r"^missing \): \(a$"):
        Regex("(a")


def test_the_library_is_loaded_for_the_first_expression_only() -> None:
    code = (
        "import sys; import tidelog.server.node; assert 're2' not in sys.modules;"
        "from tidelog.coordinator.regex import Regex; Regex('a'); assert 're2' in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
