"""Log lines: text for people, JSON for programs."""

import io
import json
import logging

from tidelog.server.structured_logs import Level, StructuredLog, capture_logging


def test_a_text_line_has_time_level_event_and_fields() -> None:
    stream = io.StringIO()
    StructuredLog(now_ms=lambda: 1_700_000_000_000, stream=stream).info(
        "node_started", node_id=1, reason='said "no"\n', empty=""
    )
    line = stream.getvalue()
    assert line.count("\n") == 1
    assert line.endswith(r'INFO node_started node_id=1 reason="said \"no\"\n" empty=""' + "\n")


def test_a_json_line_is_an_object() -> None:
    stream = io.StringIO()
    StructuredLog(now_ms=lambda: 1_700_000_000_000, stream=stream, as_json=True).warning(
        "refused", peer="::1", count=3
    )
    fields = json.loads(stream.getvalue())
    assert fields["event"] == "refused"
    assert fields["level"] == "WARNING"
    assert fields["count"] == 3


def test_lines_below_the_level_are_left_out() -> None:
    stream = io.StringIO()
    log = StructuredLog(now_ms=lambda: 1_700_000_000_000, level=Level.WARNING, stream=stream)
    log.info("quiet")
    log.error("loud")
    assert "quiet" not in stream.getvalue()
    assert "loud" in stream.getvalue()


def test_an_event_in_a_loop_is_limited_and_counted() -> None:
    stream = io.StringIO()
    log = StructuredLog(now_ms=lambda: 1_700_000_000_000, stream=stream)
    for number in range(5000):
        log.info("garbage", number=number)
    assert stream.getvalue().count("garbage") < 1000
    log.info("other")
    assert "other" in stream.getvalue()


def test_lines_of_the_logging_module_come_along() -> None:
    stream = io.StringIO()
    log = StructuredLog(now_ms=lambda: 1_700_000_000_000, stream=stream)
    with capture_logging(log):
        logging.getLogger("tidelog.storage.recovery").warning("cut %d bytes", 7)
    logging.getLogger("tidelog.storage.recovery").debug("afterwards")
    assert 'WARNING recovery message="cut 7 bytes"' in stream.getvalue()
    assert "afterwards" not in stream.getvalue()
