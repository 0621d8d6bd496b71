"""Lines of keys, compared with what tomllib reads from the same text."""

import tomllib
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from tidelog.spark.pipeline.file.toml_lines import toml_lines

_TEXT = '''\
# a comment [with.brackets] = 1
title = "a # in text"

[pipeline]
name = 'x'  # trailing
restart = { max = 3, window = "1 minute" }

[sources.orders]
topic = [
  "a",  # first
  "b",
]
options."kafka.client.id" = "me"

[steps.totals]
sql = """
SELECT \\"x\\"
FROM orders
"""
raw = \'\'\'one
two\'\'\'

[[many]]
a = 1
[many.inner]
b = 2
[[many]]
a = 3
'''


def test_each_key_is_on_its_line() -> None:
    found = toml_lines(_TEXT)
    lines = {
        ("title",): 2,
        ("pipeline",): 4,
        ("pipeline", "name"): 5,
        ("pipeline", "restart", "window"): 6,
        ("sources",): 8,
        ("sources", "orders", "topic"): 9,
        ("sources", "orders", "topic", 1): 11,
        ("sources", "orders", "options"): 13,
        ("sources", "orders", "options", "kafka.client.id"): 13,
        ("steps", "totals", "sql"): 16,
        ("many", 0, "a"): 24,
        ("many", 0, "inner", "b"): 26,
        ("many", 1, "a"): 28,
    }
    assert {path: found.line(path) for path in lines} == lines


def test_lines_of_a_text_begin_after_its_opening_quotes() -> None:
    found = toml_lines(_TEXT)
    assert found.texts[("steps", "totals", "sql")] == (17, 18, 19)
    assert found.texts[("steps", "totals", "raw")] == (20, 21)
    assert found.texts[("pipeline", "name")] == (5,)


def test_lines_that_a_backslash_joins_are_one_and_an_escaped_newline_makes_two() -> None:
    found = toml_lines(
        'a = "x\\ny"\nb = """\\\n\n  first \\\n  goes on\nsecond\\nthird\n"""\nc = \'x\\ny\'\n'
    )
    assert found.texts[("a",)] == (1, 1)
    assert found.texts[("b",)] == (4, 6, 6, 7)
    assert found.texts[("c",)] == (8,)


def test_what_the_file_lacks_is_at_the_table_around_it() -> None:
    found = toml_lines(_TEXT)
    assert found.line(("sources", "orders", "missing", "deep")) == 8
    assert found.line(("nowhere",)) == 1


_keys = st.text(st.sampled_from("ab_.'\" #=[]\\é"), min_size=1, max_size=5)
_values = st.recursive(
    st.one_of(
        st.booleans(),
        st.integers(-(2**40), 2**40),
        st.floats(allow_nan=False, allow_infinity=False),
        st.text(st.sampled_from("ab'\"#=[]{},\\\n\té"), max_size=12),
    ),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(_keys, inner, max_size=3)),
    max_leaves=6,
)


@given(st.dictionaries(_keys, _values, max_size=4), st.booleans(), st.booleans())
def test_every_key_of_any_file_is_found(
    tree: dict[str, Any], in_headers: bool, many_lines: bool
) -> None:
    text = _written(tree, in_headers, many_lines)
    assert tomllib.loads(text) == tree
    found = toml_lines(text)
    assert set(found.keys) == set(_paths(tree))
    for path, line in found.keys.items():
        if isinstance(path[-1], str):
            assert _quoted(path[-1]) in text.split("\n")[line - 1]
    for path, lines in found.texts.items():
        assert len(lines) == _at(tree, path).count("\n") + 1


def _at(tree: Any, path: tuple[str | int, ...]) -> str:
    for part in path:
        tree = tree[part]
    assert isinstance(tree, str)
    return tree


def _written(tree: dict[str, Any], in_headers: bool, many_lines: bool) -> str:
    plain = {key: value for key, value in tree.items() if not isinstance(value, dict)}
    tables = {key: value for key, value in tree.items() if isinstance(value, dict)}
    if not in_headers:
        plain, tables = tree, {}
    lines = [f"{_quoted(key)} = {_value(value, many_lines)}" for key, value in plain.items()]
    for name, table in tables.items():
        lines += ["", f"[ {_quoted(name)} ]  # the table"]
        lines += [f"{_quoted(key)} = {_value(value, many_lines)}" for key, value in table.items()]
    return "\n".join(lines)


def _value(value: Any, many_lines: bool) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        if many_lines and not value.endswith("\\"):
            escaped = value.replace("\\", "\\\\").replace('""', '"\\"')
            return f'"""\n{escaped}"""'
        return _quoted(value)
    if isinstance(value, list):
        glue = ",\n  " if many_lines else ", "
        return f"[{glue.join(_value(each, many_lines) for each in value)}]"
    if isinstance(value, dict):
        pairs = (f"{_quoted(key)} = {_value(each, False)}" for key, each in value.items())
        return "{ " + ", ".join(pairs) + " }"
    return repr(value)


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return '"' + escaped.replace("\n", "\\n").replace("\t", "\\t") + '"'


def _paths(tree: Any, at: tuple[str | int, ...] = ()) -> list[tuple[str | int, ...]]:
    pairs: Any = ()
    if isinstance(tree, dict):
        pairs = tree.items()
    elif isinstance(tree, list):
        pairs = enumerate(tree)
    found: list[tuple[str | int, ...]] = []
    for key, value in pairs:
        found += [(*at, key), *_paths(value, (*at, key))]
    return found
