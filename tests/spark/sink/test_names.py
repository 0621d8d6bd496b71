"""Names of different writers are different, whatever their texts."""

from __future__ import annotations

from urllib.parse import unquote

from hypothesis import given
from hypothesis import strategies as st

from tidelog.spark.sink.names import WriterKind, WriterNames, task_number

# The characters and words of which names are made, so that texts which look like names come up.
TEXTS = st.lists(
    st.sampled_from([":", "-", ".", "%", "%3A", "1", "a", "job", "query", "task", "decision"]),
    min_size=1,
    max_size=5,
).map("".join)


@given(TEXTS, st.sampled_from(WriterKind), TEXTS, st.integers(0, 1000))
def test_a_name_tells_whose_it_is(
    prefix: str, kind: WriterKind, writer_id: str, number: int
) -> None:
    """Whatever the texts, what a name was made of can be read from it: no two share one."""
    names = WriterNames(prefix, kind, writer_id)
    roles = {
        names.decision: "decision",
        names.piece("a", number): f"decision-a-{number}",
        names.piece("b", number): f"decision-b-{number}",
        names.task(number): f"task-{number}",
    }
    assert len(roles) == 4
    for name, role in roles.items():
        *writer, written_id, written_role = name.rsplit(":", 3)
        assert writer == [prefix, kind.value]
        assert unquote(written_id) == writer_id
        assert written_role == role


def test_names_are_readable() -> None:
    names = WriterNames("tidelog-spark", WriterKind.JOB, "orders-1")
    assert names.decision == "tidelog-spark:job:orders-1:decision"
    assert names.task(12) == "tidelog-spark:job:orders-1:task-12"
    assert task_number(names.task(12)) == 12
    odd = WriterNames("p", WriterKind.JOB, "100%: a")
    assert odd.task(0) == "p:job:100%25%3A a:task-0"
