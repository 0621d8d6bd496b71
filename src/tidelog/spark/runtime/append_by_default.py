"""`df.write.format("tidelog").save()` appends, as it does with Spark's Kafka sink.

A writer that is given no mode has the mode "error if it exists", and Spark refuses that for every
data source written in Python before it asks the source. A topic is only ever appended to, so this
takes the one for the other. Writers to other formats are left as they are.
"""

from collections.abc import Callable
from functools import wraps
from typing import Any

_FORMAT = "tidelog"
_IS_PATCHED = "_tidelog_appends_by_default"
_REFUSED = frozenset({"error", "errorifexists", "default"})


def append_by_default(spark: Any) -> None:
    """See to it for all writers of the kind that this session has, also over Spark Connect."""
    if hasattr(spark, "_jvm"):
        from pyspark.sql.readwriter import DataFrameWriter as Classic

        _patch(Classic, _classic_state)
    else:
        from pyspark.sql.connect.readwriter import DataFrameWriter as Remote

        _patch(Remote, _remote_state)


def _classic_state(writer: Any) -> tuple[str, str]:
    """What a writer was told before `save`: its format and its mode."""
    return writer._jwrite.source(), writer._jwrite.curmode().toString()


def _remote_state(writer: Any) -> tuple[str, str]:
    return writer._write.source or "", writer._write.mode or "default"


def _patch(kind: Any, state_of: Callable[[Any], tuple[str, str]]) -> None:
    if hasattr(kind, _IS_PATCHED):
        return
    save = kind.save

    @wraps(save)
    def save_or_append(
        self: Any,
        path: str | None = None,
        format: str | None = None,
        mode: str | None = None,
        *rest: Any,
        **options: Any,
    ) -> None:
        told_format, told_mode = state_of(self)
        is_ours = (format or told_format).lower() == _FORMAT
        if is_ours and (mode or told_mode).lower() in _REFUSED:
            mode = "append"
        save(self, path, format, mode, *rest, **options)

    kind.save = save_or_append
    setattr(kind, _IS_PATCHED, True)
