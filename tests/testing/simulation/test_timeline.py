"""The story of a seed: lanes of nodes, what is told and what is left out, the page of HTML."""

from html.parser import HTMLParser

from tidelog.testing.simulation.fault_events import FaultEvent
from tidelog.testing.simulation.result import Result
from tidelog.testing.simulation.timeline import Kind, lanes, moments, tell
from tidelog.testing.simulation.timeline_html import page

TRACE = """\
  0.000000  node-1       starts, life 1
  0.000000  node-2       starts, life 1
  0.100000  node-1       INFO quorum_leader leader=1 epoch=1
  0.150000  producer-0   produced 3 to topic-0-1: NONE at 17
  0.200000  node-2       DEBUG connection_closed peer=node-1:40002 reason="closed by peer"
  0.250000  network      isolating partition: node-1 to node-2
  0.300000  node-2       stands still for 100 ms
  0.500000  node-1       loses power in fdatasync of /data/0/journal
  0.500000  node-1       is down
  0.600000  node-2       INFO quorum_leader leader=2 epoch=2
  0.700000  node-1       starts, life 2
  0.750000  operator-1   moves replicas
  0.900000  invariants   node-1: topic-0-1: <b> was lost
""".splitlines()
FAILURES = ["node-1: topic-0-1: <b> was lost"]


def test_lanes_tell_who_was_up_stood_still_and_led() -> None:
    first, second = lanes(moments(TRACE))
    assert (first.name, second.name) == ("node-1", "node-2")
    assert first.up == [(0.0, 0.5), (0.7, 0.9)]
    assert first.led == [(0.1, 0.5)]
    assert second.up == [(0.0, 0.9)]
    assert second.led == [(0.6, 0.9)]
    assert second.paused == [(0.3, 0.4)]


def test_the_text_tells_of_what_counts() -> None:
    lines = list(tell(moments(TRACE, FAILURES)))
    text = "\n".join(lines)
    assert lines[0].split() == ["time", "1", "2"]
    assert "connection_closed" not in text
    assert "produced" not in text
    assert "isolating partition" in text
    assert "moves replicas" in text
    (pause,) = [line for line in lines if "stands still" in line]
    assert pause.split()[:3] == ["0.300", "L", "="]
    (led,) = [line for line in lines if "leader=2" in line]
    assert led.split()[:2] == ["0.600", "L"], "node 1 is down"
    assert lines[-1].count("!!") == 1


def test_every_line_has_a_kind() -> None:
    found = {moment.what[:14]: moment.kind for moment in moments(TRACE)}
    assert found["produced 3 to "] is Kind.CLIENT
    assert found["DEBUG connecti"] is Kind.OTHER
    assert found["loses power in"] is Kind.FAULT
    assert found["is down"] is Kind.LIFE
    assert found["node-1: topic-"] is Kind.PROBLEM


class Page(HTMLParser):
    """What is on a page, and that it asks for nothing from elsewhere."""

    def __init__(self, content: str) -> None:
        super().__init__()
        self.rows = 0
        self.bars = 0
        self.marks = 0
        self.text = ""
        self.feed(content)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert not {"src", "href"} & {name for name, _ in attrs}, "the page stands for itself"
        self.rows += tag == "tr"
        self.bars += tag == "rect"
        self.marks += tag == "circle"

    def handle_data(self, data: str) -> None:
        self.text += data


def test_the_page_has_all_lines_and_needs_nothing_else() -> None:
    result = Result(
        seed=12,
        options="nodes 2",
        failures=FAILURES,
        trace_digest="",
        trace=TRACE,
        simulated_s=0.9,
        events=1,
        counts={},
        faults=[FaultEvent(3, 250_000, "network", "partition")],
    )
    content = page(result, title="Seed 12: failed", command="tidelog simulate --seed 12")
    assert "<b>" not in content
    assert "prefers-color-scheme: dark" in content
    found = Page(content)
    assert found.rows == len(TRACE) + 1
    assert found.bars >= 6
    assert found.marks >= 8
    assert "network: partition" in found.text
    assert "tidelog simulate --seed 12" in found.text
