"""What Spark adds to the checks of a file: columns and output modes, at the line."""

from pathlib import Path
from textwrap import dedent

import pytest
from pyspark.sql import SparkSession

from tidelog.spark.pipeline.checks.deep_checks import check_deep
from tidelog.spark.pipeline.pipeline_file import read_pipeline_file
from tidelog.spark.pipeline.run.session import pipeline_session

_FILE = """
[pipeline]
name = "deep"
checkpoint = "c"
[brokers]
bootstrap = "127.0.0.1:1"

[sources.ticks]
kind = "rate"
watermark = { column = "timestamp", delay = "1 second" }

[sources.words]
topic = "words"
format = "json"
schema = "word STRING, n INT"

[steps.wrong]
sql = '''

SELECT value,
  missing
FROM ticks'''

[steps.after_wrong]
sql = "SELECT * FROM wrong"

[steps.starts]
sql = '''
SELECT window(timestamp, '1 second').start AS at, count(*) AS n FROM ticks GROUP BY 1'''

[steps.broken]
python = "f.py:f"
from = "words"

[steps.absent]
python = "no_such_module:f"
from = "words"

[steps.timed]
kind = "watermark"
from = "ticks"
column = "no_time"
delay = "1 second"

[sinks.after_wrong]
kind = "console"
from = "after_wrong"

[sinks.starts]
kind = "console"
from = "starts"

[sinks.broken]
kind = "console"
from = "broken"

[sinks.no_value]
from = "words"
topic = "out"

[sinks.no_column]
kind = "parquet"
from = "words"
path = "out"
partition_by = "day"

[sinks.no_key]
from = "words"
topic = "out"
format = "json"
key = "no_such_column"

[sinks.absent]
kind = "console"
from = "absent"

[sinks.timed]
kind = "console"
from = "timed"

[sinks.untimed]
kind = "console"
from = "untimed"

[sources.untimed]
kind = "rate"
watermark = { column = "later", delay = "1 second" }

[sinks.fine]
from = "words"
topic = "out"
format = "json"
key = "n"
"""


def test_spark_finds_what_the_text_does_not_show(
    spark: SparkSession, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "f.py").write_text("def f(frame):\n    return frame.nothing_like_it\n")
    path = tmp_path / "deep.toml"
    path.write_text(dedent(_FILE).lstrip())
    file = read_pipeline_file(path)
    assert file.spec is not None, file.problems
    with pipeline_session(file.spec, spark) as session:
        problems = check_deep(file, session)
    assert "SQLQueryContextLogger" not in capfd.readouterr().err
    text = path.read_text().splitlines()
    found = {text[each.line - 1].strip(): each.message for each in problems}
    assert len(found) == len(problems) == 9
    assert "missing" in found["missing"]
    assert "watermark" in found["[sinks.starts]"]
    assert "nothing_like_it" in found['python = "f.py:f"']
    assert "no_such_module" in found['python = "no_such_module:f"']
    assert "no_time" in found['column = "no_time"']
    assert "later" in found['watermark = { column = "later", delay = "1 second" }']
    assert "no_such_column" in found['key = "no_such_column"']
    assert not [message for message in found.values() if " pos " in message]
    assert "value" in found["[sinks.no_value]"]
    assert "has no column day" in found['partition_by = "day"']
