"""Reading and checking pipeline files: what is accepted, and what is said about the rest."""

import sys
from collections.abc import Callable
from importlib import invalidate_caches
from importlib.util import find_spec
from pathlib import Path
from textwrap import dedent

import pytest

from tidelog.spark.pipeline.file.graph import Graph
from tidelog.spark.pipeline.file.model import (
    ConsoleSink,
    DedupeStep,
    DeltaSink,
    FileSource,
    OutputMode,
    ParquetSink,
    PipelineSpec,
    PythonStep,
    SqlStep,
    TopicSink,
    TopicSource,
    Trigger,
    TriggerKind,
    Watermark,
    WatermarkStep,
)
from tidelog.spark.pipeline.file.problems import Severity
from tidelog.spark.pipeline.pipeline_file import PipelineFile, read_pipeline_file

Check = Callable[..., PipelineFile]

_WHOLE = '''
[pipeline]
name = "shop"
checkpoint = "state/checkpoints"
trigger = "5 seconds"
drain_timeout = "30 s"
restart = { max = 3, window = "5 minutes", backoff = "2 seconds", backoff_max = "20 seconds" }

[brokers]
bootstrap = "${BOOTSTRAP:-localhost:9092}"
options."client.id" = "shop"

[spark]
master = "local[2]"
conf.spark.sql.shuffle.partitions = 2
conf."spark.ui.enabled" = false

[sources.orders]
topic = ["orders", "orders-eu"]
starting_offsets = "earliest"
max_offsets_per_trigger = 1000
format = "json"
schema = "id BIGINT, customer INT, amount DOUBLE, at TIMESTAMP"
dead_letter = "orders.dead"
watermark = { column = "at", delay = "10 minutes" }
options."kafka.fetch.max.bytes" = 1048576

[sources.history]
pattern = "orders-.*"
batch = true
starting_offsets = { orders = { 0 = 23, 1 = -2 } }
lake = "lake/orders"
bootstrap = "other:9092"

[sources.customers]
kind = "csv"
path = "customers.csv"
schema = "id INT, name STRING"
options.header = true

[steps.clean]
kind = "dedupe"
from = "orders"
keys = ["id"]

[steps.timed]
kind = "watermark"
from = "CLEAN"
column = "at"
delay = "1 minute"

[steps.enriched]
python = "functions.py:enrich"
from = ["timed", "customers"]
arguments = { rate = 1.2, places = ["a"] }

[steps.totals]
sql = """
SELECT window(at, '1 minute') AS span, sum(amount) AS amount
FROM enriched JOIN history USING (id)
GROUP BY ALL
"""

[sinks.topic]
from = "totals"
topic = "totals"
key = "cast(span.start AS STRING)"
format = "json"
mode = "update"
trigger = "1 second"
options.deliveryGuarantee = "at-least-once"

[sinks.lake]
kind = "delta"
from = "enriched"
path = "lake/enriched"
partition_by = "customer"

[sinks.files]
kind = "parquet"
from = "enriched"
path = "s3a://bucket/enriched"
compression = "zstd"
trigger = "available-now"

[sinks.screen]
kind = "console"
from = "totals"
rows = 5
mode = "complete"
'''


@pytest.fixture
def check(tmp_path: Path) -> Check:
    (tmp_path / "functions.py").write_text(
        "def enrich(timed, customers, **more):\n    return timed\n"
    )

    def read(text: str, **variables: str) -> PipelineFile:
        file = tmp_path / "p.toml"
        file.write_text(dedent(text).lstrip("\n"))
        return read_pipeline_file(file, variables)

    return read


def _said(checked: PipelineFile, severity: Severity = Severity.ERROR) -> list[str]:
    """`line: message` for each finding."""
    start = len(str(checked.file.parent)) + 1
    return [
        f"{each.file[start:].removeprefix('p.toml:')}:{each.line}: {each.message}".removeprefix(
            "p.toml:"
        )
        for each in checked.problems
        if each.severity is severity
    ]


def _spec(checked: PipelineFile) -> PipelineSpec:
    assert checked.spec is not None, checked.problems
    return checked.spec


_HEAD = """
brokers.bootstrap = "b:1"
[pipeline]
name = "p"
checkpoint = "c"
[sources.orders]
topic = "orders"
"""
_TAIL = """
[sinks.out]
kind = "console"
from = "view"
"""


def test_everything_that_a_file_can_say(check: Check, tmp_path: Path) -> None:
    checked = check(_WHOLE)
    assert not checked.problems
    spec = _spec(checked)
    assert (spec.name, spec.checkpoint) == ("shop", str(tmp_path / "state/checkpoints"))
    assert spec.checkpoint_of("lake") == str(tmp_path / "state/checkpoints/lake")
    assert (spec.restart.restarts_max, spec.restart.window_ms) == (3, 300_000)
    assert (spec.restart.backoff_ms, spec.restart.backoff_ms_max) == (2_000, 20_000)
    assert spec.drain_timeout_ms == 30_000
    assert spec.spark.master == "local[2]"
    assert spec.spark.conf == {"spark.sql.shuffle.partitions": "2", "spark.ui.enabled": "false"}

    assert spec.sources["orders"] == TopicSource(
        "orders",
        {
            "kafka.client.id": "shop",
            "kafka.bootstrap.servers": "localhost:9092",
            "subscribe": "orders,orders-eu",
            "startingOffsets": "earliest",
            "maxOffsetsPerTrigger": "1000",
            "valueFormat": "json",
            "valueSchema": "id BIGINT, customer INT, amount DOUBLE, at TIMESTAMP",
            "deadLetterTopic": "orders.dead",
            "corruptRows": "deadLetter",
            "kafka.fetch.max.bytes": "1048576",
        },
        ("orders", "orders-eu"),
        watermark=Watermark("at", 600_000),
    )
    history = spec.sources["history"]
    assert isinstance(history, TopicSource)
    assert not history.is_streaming
    assert history.options["kafka.bootstrap.servers"] == "other:9092"
    assert history.options["startingOffsets"] == '{"orders": {"0": 23, "1": -2}}'
    assert history.options["lake"] == str(tmp_path / "lake/orders")
    assert spec.sources["customers"] == FileSource(
        "customers",
        "csv",
        str(tmp_path / "customers.csv"),
        "id INT, name STRING",
        {"header": "true"},
    )

    assert spec.steps["clean"] == DedupeStep("clean", "orders", ("id",))
    assert spec.steps["timed"] == WatermarkStep("timed", "CLEAN", Watermark("at", 60_000))
    enriched = spec.steps["enriched"]
    assert isinstance(enriched, PythonStep)
    assert enriched.reads == ("timed", "customers")
    assert enriched.function.file == tmp_path / "functions.py"
    assert enriched.arguments == {"rate": 1.2, "places": ["a"]}
    assert isinstance(spec.steps["totals"], SqlStep)

    every_5_s = Trigger(TriggerKind.PROCESSING_TIME, 5_000)
    assert spec.sinks["topic"] == TopicSink(
        "topic",
        "totals",
        {
            "kafka.client.id": "shop",
            "kafka.bootstrap.servers": "localhost:9092",
            "topic": "totals",
            "deliveryGuarantee": "at-least-once",
        },
        topic="totals",
        key="cast(span.start AS STRING)",
        is_json=True,
        mode=OutputMode.UPDATE,
        trigger=Trigger(TriggerKind.PROCESSING_TIME, 1_000),
    )
    assert spec.sinks["lake"] == DeltaSink(
        "lake", "enriched", str(tmp_path / "lake/enriched"), ("customer",), every_5_s
    )
    assert spec.sinks["files"] == ParquetSink(
        "files",
        "enriched",
        "s3a://bucket/enriched",
        (),
        {"compression": "zstd"},
        Trigger(TriggerKind.AVAILABLE_NOW),
    )
    assert spec.sinks["screen"] == ConsoleSink(
        "screen", "totals", 5, OutputMode.COMPLETE, every_5_s
    )


def test_a_file_that_is_not_there_or_not_toml(check: Check, tmp_path: Path) -> None:
    (problem,) = read_pipeline_file(tmp_path / "nowhere.toml").problems
    assert str(problem).endswith("nowhere.toml:1: error: cannot be read: No such file or directory")
    assert _said(check("[pipeline]\nname = \n")) == ["2: is not TOML: Invalid value"]
    (said,) = _said(check('[pipeline]\nname = """x\n\ny'))
    assert said.startswith("4: is not TOML: ")


def test_an_empty_file_is_told_what_it_needs(check: Check) -> None:
    assert _said(check("")) == [
        "1: the file needs [pipeline] with 'name' and 'checkpoint'",
        "1: the pipeline has no sinks: add [sinks.NAME]",
        "1: the pipeline has no sources: add [sources.NAME]",
    ]


def test_unknown_keys_get_the_near_name(check: Check) -> None:
    said = _said(
        check(
            """
            [pipeline]
            nmae = "x"
            checkpoint = "c"
            triger = "1 s"
            [source.a]
            [sources.orders]
            bootstrap = "b:1"
            topic = "orders"
            starting_offset = "earliest"
            [sinks.out]
            kind = "consle"
            from = "orders"
            """
        )
    )
    assert said == [
        "1: [pipeline] needs 'name'",
        "2: unknown key 'nmae' in [pipeline]. Did you mean 'name'?",
        "4: unknown key 'triger' in [pipeline]. Did you mean 'trigger'?",
        "5: unknown key 'source'. Did you mean 'sources'?",
        "9: unknown key 'starting_offset' in [sources.orders]. Did you mean 'starting_offsets'?",
        "11: 'kind' cannot be 'consle'; choose from topic, parquet, delta, iceberg, console."
        " Did you mean 'console'?",
    ]


def test_a_missing_kind_is_guessed_from_what_was_meant(check: Check) -> None:
    said = _said(check("[sources.a]\ntopc = 'x'\n[steps.b]\n[sinks.c]\n"))
    assert (
        "1: [sources.a] needs 'kind': one of topic, parquet, json, csv, orc, text, delta, table, "
        "sql, rate. For 'topc': Did you mean 'topic'?" in said
    )
    assert "3: [steps.b] needs 'kind': one of sql, watermark, dedupe, python." in said


def test_wrong_types_and_values_are_named(check: Check) -> None:
    said = _said(
        check(
            """
            [pipeline]
            name = "a b"
            checkpoint = 4
            trigger = "soon"
            drain_timeout = "ten"
            restart = { max = -1, backoff = "2 minutes" }
            [spark.conf]
            master = "local"
            [sources.t]
            topic = ["a", 1]
            bootstrap = "b:1"
            batch = "no"
            [sources.r]
            kind = "rate"
            rows_per_second = "5"
            [sources.select]
            kind = "rate"
            [sinks.out]
            kind = "console"
            from = "r"
            mode = "upsert"
            trigger = "continuous"
            """
        )
    )
    assert said == [
        "2: the name 'a b' may have letters, digits, '.', '_' and '-' only",
        "3: 'checkpoint' must be a text, not a whole number",
        "4: 'trigger' cannot be 'soon': give the time between micro-batches, such as '5 seconds' "
        "or '0 seconds', or 'available-now' or 'once'",
        "5: 'drain_timeout': 'ten' is not a duration: write a number and a unit, such as "
        "'10 seconds', '5 minutes' or '500 ms'",
        "6: 'backoff' is longer than 'backoff_max'",
        "6: 'max' is -1, but must be at least 0",
        "8: 'master' is not a setting of Spark: they begin with 'spark.'",
        "10: 'topic' must be a text or a list of texts, not a list",
        "12: 'batch' must be true or false, not the text 'no'",
        "15: 'rows_per_second' must be a whole number, not the text '5'",
        "16: 'select' cannot be the name of a view: it is a word of SQL",
        "21: 'mode' cannot be 'upsert'; choose from append, update, complete.",
        "22: trigger = 'continuous' is not possible: Spark offers continuous processing to its own "
        "sources only",
    ]


def test_a_number_may_come_from_a_variable(check: Check) -> None:
    text = """
    [pipeline]
    name = "p"
    checkpoint = "c"
    [sources.r]
    kind = "rate"
    rows_per_second = "${RATE}"
    [sinks.out]
    kind = "console"
    from = "r"
    """
    assert _spec(check(text, RATE="7")).sources["r"].options["rowsPerSecond"] == "7"  # type: ignore[union-attr]
    assert _said(check(text)) == [
        "6: the variable RATE is not set: export it, or give a default with ${RATE:-default}",
    ]


def test_references_to_nothing_are_at_their_line(check: Check) -> None:
    said = _said(
        check(
            _HEAD
            + """
[steps.view]
sql = '''
SELECT *
FROM oders o
JOIN Orders ON o.id = orders.id
'''
[steps.other]
kind = "dedupe"
from = "nothing"
keys = "id"
[sinks.out]
kind = "console"
from = "veiw"
"""
        )
    )
    assert said == [
        "11: there is no view 'oders'. Did you mean 'orders'?",
        "16: there is no view 'nothing'.",
        "20: there is no view 'veiw'. Did you mean 'view'?",
    ]


def test_a_reference_to_what_could_not_be_read_is_not_reported_again(check: Check) -> None:
    said = _said(
        check(
            _HEAD
            + """
[steps.broken]
kind = "sqll"
[steps.view]
sql = "SELECT * FROM broken"
"""
            + _TAIL
        )
    )
    assert said == [
        "9: 'kind' cannot be 'sqll'; choose from sql, watermark, dedupe, python. "
        "Did you mean 'sql'?"
    ]


def test_a_variable_that_is_not_set_is_all_that_is_told_of_it(check: Check) -> None:
    said = _said(
        check(
            """
            [pipeline]
            name = "${NAME_OF_IT}"
            checkpoint = "c"
            trigger = "${TRIGGER_OF_IT}"
            [brokers]
            bootstrap = "${BROKERS_OF_IT}"
            [sources.orders]
            topic = "orders"
            batch = "${BATCH_OF_IT}"
            [steps.view]
            sql = "SELECT * FROM ${TABLE_OF_IT}"
            [sinks.out]
            from = "${VIEW_OF_IT}"
            topic = "out"
            mode = "${MODE_OF_IT}"
            """
        )
    )
    assert [each.split(" is not set")[0] for each in said] == [
        "2: the variable NAME_OF_IT",
        "4: the variable TRIGGER_OF_IT",
        "6: the variable BROKERS_OF_IT",
        "9: the variable BATCH_OF_IT",
        "11: the variable TABLE_OF_IT",
        "13: the variable VIEW_OF_IT",
        "15: the variable MODE_OF_IT",
    ]


def test_sql_that_cannot_be_read_may_use_anything(check: Check) -> None:
    checked = check(_HEAD + "[steps.view]\nsql = 'SELECT ( FROM orders'\n" + _TAIL)
    assert len(_said(checked)) == 1
    assert _said(checked, Severity.WARNING) == []


def test_a_path_may_begin_at_home(check: Check, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/ada")
    text = _HEAD.replace('"c"', '"~/checkpoints"') + _TAIL.replace('"view"', '"orders"')
    assert _spec(check(text)).checkpoint == "/home/ada/checkpoints"


def test_a_key_where_a_table_must_be_is_told_once(check: Check) -> None:
    said = _said(check("sources.topic = 'orders'\n" + _HEAD + _TAIL))
    assert [each for each in said if "topic" in each] == [
        "1: 'topic' must be a table, not the text 'orders'"
    ]


def test_circles_are_shown(check: Check) -> None:
    said = _said(
        check(
            _HEAD
            + """
[steps.view]
sql = "SELECT * FROM b"
[steps.b]
sql = "SELECT * FROM c, orders"
[steps.c]
sql = "SELECT * FROM view"
"""
            + _TAIL
        )
    )
    assert said == ["8: views read each other in a circle: view -> b -> c -> view"]


def test_names_are_unique_without_regard_to_case(check: Check) -> None:
    checked = check(_HEAD + "[steps.Orders]\nsql = 'SELECT * FROM orders'\n" + _TAIL)
    assert "7: there is a view 'orders' already" in _said(checked)


def test_what_no_sink_uses_is_a_warning(check: Check) -> None:
    checked = check(
        _HEAD
        + """
[sources.lookup]
kind = "sql"
sql = "SELECT * FROM range(3)"
[steps.view]
sql = "SELECT * FROM orders"
"""
        + _TAIL
    )
    assert _spec(checked)
    assert _said(checked, Severity.WARNING) == ["8: nothing uses 'lookup'"]


def test_lines_of_sql_are_those_of_the_file_however_it_is_written(check: Check) -> None:
    joined = '[steps.view]\nsql = """\\\n  SELECT * \\\n  FROM \n  oders"""\n'
    assert _said(check(_HEAD + joined + _TAIL)) == [
        "11: there is no view 'oders'. Did you mean 'orders'?"
    ]
    escaped = '[steps.view]\nsql = "SELECT *\\nFROM oders"\n'
    assert _said(check(_HEAD + escaped + _TAIL))[0].startswith("8: there is no view")


def test_sql_in_a_file_has_lines_of_its_own(check: Check, tmp_path: Path) -> None:
    (tmp_path / "view.sql").write_text("SELECT *\nFROM oders\n")
    text = _HEAD + "[steps.view]\nsql_file = 'view.sql'\n" + _TAIL
    assert _said(check(text)) == ["view.sql:2: there is no view 'oders'. Did you mean 'orders'?"]
    (tmp_path / "view.sql").write_text("SELECT *\nFROM orders WHERE x = 'y\n")
    assert _said(check(text)) == ["view.sql:2: SQL: this string is not closed"]
    (tmp_path / "view.sql").unlink()
    assert "'sql_file' cannot be read" in _said(check(text))[0]


def test_appending_an_aggregation_needs_a_watermark(check: Check) -> None:
    def text(source: str = "", mode: str = "append", sql: str = "FROM orders") -> str:
        return (
            _HEAD.rstrip()
            + f"\n{source}\n[steps.view]\nsql = '''\nSELECT key, count(*) AS n\n{sql}\n"
            + f"GROUP BY key'''\n[sinks.out]\nkind = 'console'\nfrom = 'view'\nmode = '{mode}'\n"
        )

    said = _said(check(text()))
    assert said == [
        "10: sink 'out' appends, so this aggregation needs a watermark to know when a group is "
        "complete: give 'orders' one"
    ]
    assert not _said(check(text(mode="update")))
    assert not _said(check(text(mode="complete")))
    assert not _said(check(text("watermark = { column = 'timestamp', delay = '1 s' }")))
    in_sql = "FROM orders WATERMARK timestamp DELAY OF INTERVAL 1 SECOND"
    assert not _said(check(text(sql=in_sql)))
    static = "[sources.fixed]\nkind = 'sql'\nsql = 'SELECT 1 AS key'"
    assert not any("watermark" in each for each in _said(check(text(static, sql="FROM fixed"))))


def test_complete_mode_needs_an_aggregation(check: Check) -> None:
    checked = check(_HEAD + "[sinks.out]\nkind = 'console'\nfrom = 'orders'\nmode = 'complete'\n")
    assert _said(checked) == ["10: mode = 'complete' needs an aggregation (GROUP BY)"]


def test_deduplication_needs_a_watermark_or_unbounded_state(check: Check) -> None:
    step = "[steps.view]\nkind = 'dedupe'\nfrom = 'orders'\nkeys = 'key'\n"
    assert "7: 'orders' has no watermark to dedupe within" in _said(check(_HEAD + step + _TAIL))[0]
    unbounded = check(_HEAD + step + "within_watermark = false\n" + _TAIL)
    assert _said(unbounded, Severity.WARNING) == [
        "7: without a watermark the state grows with the keys"
    ]


def test_joined_streams_without_watermarks_are_a_warning(check: Check) -> None:
    source = "[sources.payments]\ntopic = 'payments'\n"
    step = "[steps.view]\nsql = '''\nSELECT * FROM orders JOIN payments USING (key)'''\n"
    checked = check(_HEAD + source + step + _TAIL)
    assert _said(checked, Severity.WARNING) == [
        "11: this joins streams, but orders and payments have no watermark: state grows for ever"
    ]
    static = "[sources.payments]\ntopic = 'payments'\nbatch = true\n"
    assert not check(_HEAD + static + step + _TAIL).problems


def test_window_functions_on_streams_are_refused(check: Check) -> None:
    step = "[steps.view]\nsql = '''SELECT *,\nrow_number() OVER (ORDER BY key) FROM orders'''\n"
    assert _said(check(_HEAD + step + _TAIL)) == [
        "9: OVER (...) does not work on a stream: use GROUP BY window(...), or dedupe"
    ]


def test_a_sink_needs_a_stream(check: Check) -> None:
    text = """
    [pipeline]
    name = "p"
    checkpoint = "c"
    [sources.view]
    kind = "sql"
    sql = "SELECT 1 AS x"
    [sinks.out]
    kind = "console"
    from = "view"
    """
    assert _said(check(text))[0].startswith("9: 'view' reads no stream")


def test_a_source_of_sql_reads_no_view(check: Check) -> None:
    checked = check(_HEAD + "[sources.view]\nsql = 'SELECT * FROM orders'\n" + _TAIL)
    assert "8: a source reads no view, but this one reads 'orders': make it a step" in _said(
        checked
    )


def test_lake_sinks_only_append_and_not_twice_to_one_place(check: Check) -> None:
    checked = check(
        _HEAD
        + """
[sinks.a]
kind = "parquet"
from = "orders"
path = "lake"
mode = "update"
[sinks.b]
kind = "delta"
from = "orders"
path = "lake"
"""
    )
    assert _said(checked) == [
        "12: a parquet sink can only append: leave out 'mode', or change it",
        "16: sink 'a' writes there already",
    ]


def test_a_missing_package_is_named(check: Check, monkeypatch: pytest.MonkeyPatch) -> None:
    sink = "[sinks.out]\nkind = 'iceberg'\nfrom = 'orders'\ntable = 'db.t'\npath = 'lake'\n"
    is_here = find_spec("pyiceberg") is not None
    missing = (
        '8: this sink needs the package pyiceberg, which is missing: pip install "tidelog[iceberg]"'
    )
    assert _said(check(_HEAD + sink)) == ([] if is_here else [missing])
    # An environment without any packages of its own.
    monkeypatch.setattr(sys, "path", [])
    monkeypatch.delitem(sys.modules, "pyiceberg", raising=False)
    invalidate_caches()
    assert _said(check(_HEAD + sink)) == [missing]


def test_topics_that_bite_their_tail(check: Check) -> None:
    checked = check(
        _HEAD.rstrip()
        + """
format = "json"
schema = "a INT"
dead_letter = "orders"
[sinks.out]
from = "orders"
topic = "orders"
"""
    )
    assert _said(checked) == ["9: 'orders' is the topic that is read: choose another"]
    assert _said(checked, Severity.WARNING) == [
        "12: 'orders' is what source 'orders' reads: the pipeline feeds itself"
    ]


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ("dead_letter = 'd'", "7: 'dead_letter' needs format = 'string' or 'json' or"),
        ("format = 'string'\ncorrupt = 'dead-letter'", "8: corrupt = 'dead-letter' needs"),
        (
            "format = 'string'\ncorrupt = 'column'\ndead_letter = 'd'",
            "9: 'dead_letter' has no effect",
        ),
        ("format = 'json'", "5: [sources.orders] needs 'schema' for format = 'json'"),
        ("format = 'avro'\nmessage = 'M'", "5: [sources.orders] needs 'schema'"),
        ("format = 'protobuf'", "5: [sources.orders] needs 'message' (protobuf"),
        ("format = 'json'\nschema = 'a INT'\nframing = 'none'", "9: 'framing' needs format ="),
        ("schema = 'a INT'", "7: 'schema' needs format = 'json' or 'avro'"),
        ("pattern = 'x'", "5: [sources.orders] needs one of topic, pattern, assign, not topic and"),
        ("watermark = { column = 'at' }", "7: [sources.orders.watermark] needs 'delay'"),
    ],
)
def test_topic_sources_are_consistent(check: Check, lines: str, message: str) -> None:
    sink = "\n[sinks.out]\nkind = 'console'\nfrom = 'orders'\n"
    assert _said(check(_HEAD.rstrip() + f"\n{lines}" + sink))[0].startswith(message)


@pytest.mark.parametrize(
    ("function", "message"),
    [
        ("functions", "'python' is 'functions', but must be"),
        ("functions.py:enrch", "has no function 'enrch'. Did you mean 'enrich'?"),
        ("nowhere.py:f", "cannot be read"),
        ("broken.py:f", "broken.py:1 is not Python"),
        ("a-b:f", "'a-b' is not the name of a module"),
    ],
)
def test_functions_are_looked_for(
    check: Check, tmp_path: Path, function: str, message: str
) -> None:
    (tmp_path / "broken.py").write_text("def f(:\n")
    step = f"[steps.view]\npython = '{function}'\nfrom = 'orders'\n"
    (said,) = _said(check(_HEAD + step + _TAIL))
    assert said.startswith("8: ")
    assert message in said


def _topic_options(check: Check, lines: str) -> dict[str, str]:
    sink = "\n[sinks.out]\nkind = 'console'\nfrom = 'orders'\n"
    source = _spec(check(_HEAD.rstrip() + f"\n{lines}" + sink)).sources["orders"]
    assert isinstance(source, TopicSource)
    return {
        name: value
        for name, value in source.options.items()
        if name not in ("subscribe", "kafka.bootstrap.servers")
    }


def test_formats_are_options_of_the_source(check: Check, tmp_path: Path) -> None:
    assert _topic_options(check, "format = 'string'") == {
        "valueFormat": "string",
        "corruptRows": "fail",
    }
    assert _topic_options(
        check, "format = 'json'\nschema = 'a INT'\ncorrupt = 'column'\nprefix = 'v_'"
    ) == {
        "valueFormat": "json",
        "valueSchema": "a INT",
        "corruptRows": "column",
        "valuePrefix": "v_",
    }
    (tmp_path / "a.avsc").write_text(
        '{"type": "record", "name": "A", "fields": [{"name": "x", "type": "int"}]}'
    )
    assert _topic_options(
        check, "format = 'avro'\nschema_file = 'a.avsc'\nframing = 'single-object'"
    ) == {
        "valueFormat": "avro",
        "valueSchema": str(tmp_path / "a.avsc"),
        "avroFraming": "singleObject",
        "corruptRows": "fail",
    }


@pytest.mark.parametrize(
    ("lines", "line", "message"),
    [
        ("starting_offsets = 'soon'", 7, "startingOffsets"),
        ("ending_offsets = 'latest'", 7, "endingOffsets"),
        ("\noptions.maxOffsetPerTrigger = 3", 8, "maxOffsetsPerTrigger"),
        ("options.kafka.security.protocol = 'SSL'", 7, "security.protocol"),
        ("format = 'json'\nschema = 'a INTEGR'", 8, "INTEGR"),
        ("batch = true\ngroup_id = 'g'", 8, "groupId"),
    ],
)
def test_options_of_topics_are_checked_by_the_source(
    check: Check, lines: str, line: int, message: str
) -> None:
    tail = "[sinks.out]\nkind = 'console'\nfrom = 'o'\n[sources.o]\ntopic = 'o'\n"
    (said,) = _said(check(_HEAD.rstrip() + f"\n{lines}\n" + tail))
    assert said.startswith(f"{line}: ")
    assert message in said


def test_what_brokers_has_wrong_is_told_where_it_stands(check: Check) -> None:
    sinks = "[sinks.out]\nfrom = 'orders'\ntopic = 't'\n"
    (said,) = _said(check(_HEAD.replace('"b:1"', '"b:port"') + sinks))
    assert said.startswith("1: ")
    options = "[brokers.options]\n'client.id' = 'x'\n'request.timeout.ms' = 'soon'\n"
    # Source and sink have words of their own for it.
    assert {each.split(":")[0] for each in _said(check(_HEAD + sinks + options))} == {"12"}


def test_options_of_topics_are_checked_by_the_sink(check: Check) -> None:
    sink = "[sinks.out]\nfrom = 'orders'\ntopic = 't'\noptions.deliveryGuarantee = 'maybe'\n"
    (said,) = _said(check(_HEAD + sink))
    assert said.startswith("10: deliveryGuarantee is 'maybe'")


def test_the_first_sink_that_reads_a_source_owns_it(check: Check) -> None:
    spec = _spec(check(_WHOLE))
    graph = Graph(spec)
    owned = {name: graph.owned(sink) for name, sink in spec.sinks.items()}
    assert owned == {
        "topic": {"orders", "history", "customers"},
        "lake": set(),
        "files": set(),
        "screen": set(),
    }
