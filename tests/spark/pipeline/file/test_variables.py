"""Variables in the texts of a pipeline file."""

from tidelog.spark.pipeline.file.toml_lines import Path
from tidelog.spark.pipeline.file.variables import substitute


def _substituted(tree: object, **variables: str) -> tuple[object, list[tuple[Path, str]]]:
    reported: list[tuple[Path, str]] = []
    made = substitute(tree, variables, lambda path, message: reported.append((path, message)))
    return made, reported


def test_variables_are_replaced_everywhere() -> None:
    tree = {"a": "${HOST}:${PORT:-9092}", "b": [{"c": "x${HOST}"}], "d": 4, "e": "plain"}
    made, reported = _substituted(tree, HOST="here")
    assert made == {"a": "here:9092", "b": [{"c": "xhere"}], "d": 4, "e": "plain"}
    assert not reported


def test_an_empty_default_is_a_default_and_a_set_variable_wins() -> None:
    assert _substituted("[${A:-}]") == ("[]", [])
    assert _substituted("[${A:-no}]", A="") == ("[]", [])


def test_a_doubled_dollar_is_no_variable() -> None:
    assert _substituted("$${A} costs $5", A="x") == ("${A} costs $5", [])


def test_what_is_missing_or_malformed_is_reported_with_its_path() -> None:
    _, reported = _substituted({"a": ["${NOPE}"], "b": "${1x}", "c": "${open"})
    paths = [path for path, _ in reported]
    assert paths == [("a", 0), ("b",), ("c",)]
    assert "NOPE is not set" in reported[0][1]
    assert "not a variable" in reported[1][1]
    assert "closing brace" in reported[2][1]
