"""The examples are pipelines without errors."""

from pathlib import Path

import pytest

from tidelog.spark.pipeline import Pipeline

_EXAMPLES = Path(__file__).parents[3] / "examples"


@pytest.mark.parametrize("file", sorted(_EXAMPLES.glob("*/*.toml")), ids=lambda each: each.stem)
def test_an_example_has_no_problems(file: Path) -> None:
    pipeline = Pipeline.load(file)
    assert not pipeline.warnings
    assert pipeline.plan().sinks
