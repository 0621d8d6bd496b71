"""The summary decides whether `make test-kafka-clients` fails."""

from pathlib import Path

import pytest

from tests.kafka_clients.results import Result, Summary, Verdict, read_results, read_verdicts


def result(method: str, status: str, reason: str = "", invocation: int = 1) -> Result:
    display_name = f"{method} [{invocation}] isolated brokers=1{{}}[]"
    return Result("org.example.TopicTest", method, display_name, status, 5, reason)


def test_a_failure_without_a_verdict_is_unexplained() -> None:
    failed = result("create", "FAILED", "expected: <1> but was: <2>")
    summary = Summary([failed, result("delete", "PASSED")], {})
    assert summary.unexplained == [failed]
    assert "| TopicTest | 2 | 1 | 1 |  |" in summary.table()
    assert summary.failures().startswith("FAILED TopicTest.create create [1] isolated")


@pytest.mark.parametrize("name", ["TopicTest.create", "TopicTest.*"])
def test_a_verdict_explains_a_failure(name: str) -> None:
    failed = result("create", "FAILED")
    known = Verdict("differs", "names are longer")
    summary = Summary([failed], {name: known})
    assert summary.unexplained == []
    assert summary.known == [(failed, known)]
    assert summary.run == 1


def test_a_failure_of_what_one_node_lacks_counts_as_skipped() -> None:
    verdicts = {"TopicTest.create": Verdict("needs cluster", "three replicas")}
    summary = Summary([result("create", "FAILED")], verdicts)
    assert summary.unexplained == []
    assert summary.run == 0
    assert "| TopicTest | 0 | 0 | 0 | 1 needs cluster |" in summary.table()


def test_skipped_tests_are_counted_by_category() -> None:
    aborted = "org.opentest4j.TestAbortedException: needs cluster: stops broker 1"
    summary = Summary(
        [result("a", "SKIPPED", aborted), result("b", "SKIPPED", "needs cluster: brokers=3")], {}
    )
    assert "2 needs cluster" in summary.table()


def test_tests_that_start_no_broker_are_left_out(tmp_path: Path) -> None:
    path = tmp_path / "results.tsv"
    path.write_text(
        "org.example.TopicTest\tparse\tparse()\tFAILED\t5\tbad\n"
        "org.example.TopicTest\tcreate\tcreate [1] isolated brokers=1{}[]\tPASSED\t5\t\n"
    )
    assert read_results(path) == [result("create", "PASSED")]


def test_every_verdict_of_the_repository_has_a_category_and_a_reason() -> None:
    verdicts = read_verdicts(Path(__file__).with_name("verdicts.tsv"))
    assert all(verdict.category and verdict.reason for verdict in verdicts.values())
