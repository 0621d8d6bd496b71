"""What a producer beside a failure tells of it."""

from benchmarks.cluster.writer import Writer, Written
from tidelog.testing import Broker


def test_the_first_write_after_a_failure_is_one_that_was_sent_after_it() -> None:
    # The first was on its way when the leader was killed at 10.0; its answer came later.
    written = Written([(9.9, 10.01), (9.95, 10.8), (10.02, 10.9), (10.05, 10.95)], failed=0)
    assert round(written.first_after(10.0), 6) == 0.9


def test_the_longest_wait_is_that_of_a_record() -> None:
    written = Written([(1.0, 1.5), (1.2, 1.6), (2.0, 2.1)], failed=0)
    assert written.longest_s == 0.5


def test_it_writes_until_it_is_told_to_finish() -> None:
    with Broker(mode="process", settings={"auto.create.topics.enable": "true"}) as broker:
        writer = Writer(broker.bootstrap_servers, "written", rate=200)
        writer.await_first()
        written = writer.finish()
    assert written.acknowledged
    assert written.failed == 0
    assert all(done >= sent for sent, done in written.acknowledged)
