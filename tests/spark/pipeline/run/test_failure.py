"""The line of a failure that a person wants to read."""

from tidelog.spark.errors import OptionError
from tidelog.spark.pipeline.run.failure import (
    failure_reason,
    for_people,
    is_connection_lost,
    is_hopeless,
)

_STREAM = """\
[STREAM_FAILED] Query [id = 7f24, runId = 2cbb] terminated with exception: \
[USER_RAISED_EXCEPTION] boom SQLSTATE: P0001 SQLSTATE: XXKST
=== Streaming Query ===
Identifier: [id = 7f24, runId = 2cbb]

JVM stacktrace:
org.apache.spark.SparkRuntimeException
	at org.apache.spark.sql.execution.Something.apply(Something.scala:1)
"""
_PYTHON = """\
Job aborted due to stage failure: Task 0 in stage 1.0 failed 4 times:
Traceback (most recent call last):
  File "worker.py", line 3, in first
KeyError: 'inner'

During handling of the above exception, another exception occurred:

Traceback (most recent call last):
  File "worker.py", line 9, in main
    raise ValueError("x")
tidelog.spark.errors.DataLossError: orders-0: offsets 5 to 9 are gone

	at org.apache.spark.api.python.BasePythonRunner.read(PythonRunner.scala:1)
"""


def test_spark_s_words_without_ids_and_stack() -> None:
    assert failure_reason(_STREAM) == "[USER_RAISED_EXCEPTION] boom"


def test_the_error_of_a_python_worker_goes_before_spark_s_words_about_it() -> None:
    reason = "tidelog.spark.errors.DataLossError: orders-0: offsets 5 to 9 are gone"
    assert failure_reason(_PYTHON) == reason
    assert for_people(reason) == "orders-0: offsets 5 to 9 are gone"
    assert for_people("KeyError: 'tidelog.x: '") == "KeyError: 'tidelog.x: '"


def test_a_place_in_the_query_is_kept_without_the_state_before_it() -> None:
    text = "[UNRESOLVED_COLUMN] no x. SQLSTATE: 42703; line 1 pos 7;\n'Project ['x]"
    assert failure_reason(text) == "[UNRESOLVED_COLUMN] no x.; line 1 pos 7"


def test_what_java_raised_goes_before_the_call_that_met_it() -> None:
    text = (
        "An error occurred while calling o762.start.\n: org.apache.spark.SparkException: [X] no\n"
        "\tat org.apache.spark.sql.Some$.thing(Some.scala:1)\n"
    )
    assert failure_reason(text) == "SparkException: [X] no"


def test_there_is_always_a_reason_of_bounded_length() -> None:
    assert failure_reason("") == "it failed without a reason"
    assert len(failure_reason("x" * 9_999)) == 500


class AnalysisException(Exception):
    pass


def test_mistakes_are_hopeless_and_accidents_are_not() -> None:
    assert is_hopeless(AnalysisException("no column"), "no column", at_start=True)
    assert is_hopeless(OptionError("x"), "x", at_start=True)
    assert is_hopeless(RuntimeError(), "tidelog.spark.errors.OptionError: x", at_start=False)
    assert is_hopeless(ModuleNotFoundError("m"), "m", at_start=True)
    assert not is_hopeless(RuntimeError("x"), "x", at_start=True)
    assert not is_hopeless(TypeError("in a batch"), "in a batch", at_start=False)


def test_a_broker_that_is_away_while_a_query_is_made_is_an_accident() -> None:
    error = AnalysisException("[PYTHON_DATA_SOURCE_ERROR] Traceback ... ConnectError: no broker")
    assert not is_hopeless(error, "ConnectError: no broker", at_start=True)
    assert is_hopeless(error, "tidelog.spark.errors.OptionError: x", at_start=True)


def test_a_lost_connection_is_told_from_an_answer() -> None:
    assert is_connection_lost(ConnectionRefusedError())
    assert is_connection_lost(EOFError())
    assert not is_connection_lost(ValueError())
    assert not is_connection_lost(BrokenPipeError())  # of our own output
