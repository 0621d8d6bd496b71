"""What the page says of a comparison follows from its rounds."""

import json
from pathlib import Path

from benchmarks.report import Report


def _report(names: list[str] | None = None) -> Report:
    return Report(["Tidelog", "Kafka"] if names is None else names, rounds=3, load_before=0.0)


def test_a_ratio_is_the_median_of_those_within_each_round() -> None:
    report = _report()
    # The machine was twice as slow in the second round, for both.
    for ours, theirs in ((300, 200), (150, 100), (360, 200)):
        report.note("Tidelog", {"produce, MB/s": ours})
        report.note("Kafka", {"produce, MB/s": theirs})
    assert report.ratios("produce, MB/s") == [1.5, 1.5, 1.8]
    row = dict(zip(report.columns(), report.rows()[0], strict=True))
    assert row["ratio"] == "1.50"
    assert row["lowest to highest"] == "1.50 to 1.80"
    assert row["target"] == "≥ 1.5 times Kafka met"


def test_a_round_that_was_cut_short_is_left_out_of_the_ratios() -> None:
    report = _report()
    report.note("Tidelog", {"produce, MB/s": 300})
    report.note("Kafka", {"produce, MB/s": 200})
    report.note("Tidelog", {"produce, MB/s": 900})
    assert report.ratios("produce, MB/s") == [1.5]


def test_a_target_that_is_not_reached_is_missed() -> None:
    report = _report()
    report.note("Tidelog", {"consume, CPU s/GB": 0.5, "at 50 MB/s, p99 ms": 10.5})
    report.note("Kafka", {"consume, CPU s/GB": 0.4, "at 50 MB/s, p99 ms": 100.0})
    assert report.missed() == ["consume, CPU s/GB", "at 50 MB/s, p99 ms"]


def test_the_bare_loop_stands_beside_the_brokers() -> None:
    report = _report()
    for name, value in (("Tidelog", 0.4), ("Kafka", 0.6), ("floor", 0.3)):
        report.note(name, {"raw consume, CPU s/GB": value})
    assert report.rows() == [["raw consume, CPU s/GB", "0.4", "0.6", "0.67", "", "0.3", ""]]


def test_two_source_trees_are_compared_without_the_targets_set_for_kafka() -> None:
    report = _report(["this", "base"])
    report.note("this", {"produce, MB/s": 100.0})
    report.note("base", {"produce, MB/s": 200.0})
    assert "target" not in report.columns()
    assert report.missed() == []


def test_json_has_every_round(tmp_path: Path) -> None:
    report = _report()
    for value in (1.0, 2.0, 3.0):
        report.note("Tidelog", {"produce, MB/s": value})
        report.note("Kafka", {"produce, MB/s": value})
    path = tmp_path / "results.json"
    report.write_json(path)
    assert json.loads(path.read_text())["figures"]["produce, MB/s"]["Kafka"] == [1.0, 2.0, 3.0]
