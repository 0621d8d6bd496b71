"""The one line of a Spark failure that a person wants to read."""

import re

_END = re.compile(
    r"\n+(?:=== Streaming Query ===|JVM stacktrace:|\s*at [\w.$]+\(|Driver stacktrace:)"
)
_QUERY = re.compile(r"^\[STREAM_FAILED\] Query \[[^\]]*\] terminated with exception: ")
_CALL = re.compile(r"^An error occurred while calling \S+\n: (?:[\w$]+\.)*")
_SQLSTATE = re.compile(r"( SQLSTATE: \w+)+(?=;|$)")
_RAISED = re.compile(r"^(?:[A-Za-z_]\w*\.)*[A-Za-z_]\w*(?:Error|Exception|Exit|Interrupt)\b.*")
_OUR_ERROR = re.compile(r"^(?:tidelog|pyspark_tidelog)\.[\w.]+: ")
_LENGTH_MAX = 500

# Mistakes in the pipeline: the next start would meet them again.
_HOPELESS = ("AnalysisException", "ParseException", "OptionError", "SyntaxError", "NameError")
_HOPELESS_AT_START = (
    "SparkClassNotFoundException",
    *("ImportError", "ModuleNotFoundError", "AttributeError", "TypeError"),
    *("IllegalArgumentException", "PySparkTypeError", "PySparkValueError"),
)


def failure_reason(text: str) -> str:
    """What went wrong, from the text of an exception of Spark."""
    python_error = _last_python_error(text)
    if python_error is not None:
        return _shortened(python_error)
    head = _CALL.sub("", _END.split(text, maxsplit=1)[0].strip())
    line = _QUERY.sub("", head).split("\n", 1)[0].strip()
    return _shortened(_SQLSTATE.sub("", line).rstrip("; ")) or "it failed without a reason"


def for_people(reason: str) -> str:
    """A reason without the place of our own errors in the source, which says nothing to a user."""
    return _OUR_ERROR.sub("", reason)


def is_hopeless(error: BaseException, reason: str, *, at_start: bool) -> bool:
    """Whether another start would fail the same way."""
    names = {each.__name__ for each in type(error).__mro__}
    name = reason.split(":", 1)[0].rpartition(".")[2]
    if "AnalysisException" in names and "PYTHON_DATA_SOURCE" in str(error):
        # What a source or sink in Python raised while a query was made: it may be a broker that is
        # away for a moment.
        return name in _HOPELESS
    hopeless = _HOPELESS + (_HOPELESS_AT_START if at_start else ())
    return name in hopeless or not names.isdisjoint(hopeless)


def is_connection_lost(error: BaseException) -> bool:
    """Whether Spark's Java process, or its Connect server, cannot be reached any more."""
    names = {each.__name__ for each in type(error).__mro__}
    lost = (ConnectionRefusedError, ConnectionResetError, EOFError)
    return isinstance(error, lost) or "Py4JNetworkError" in names


def _last_python_error(text: str) -> str | None:
    """The last line of the last Python traceback in a text."""
    _, separator, rest = text.rpartition("Traceback (most recent call last):")
    if not separator:
        return None
    for line in rest.split("\n"):
        if _RAISED.match(line):
            return _SQLSTATE.sub("", line.strip())
    return None


def _shortened(text: str) -> str:
    return text if len(text) <= _LENGTH_MAX else f"{text[: _LENGTH_MAX - 1]}…"
