"""The sink of `format("tidelog")`: rows to topics, each micro-batch exactly once.

Where to begin: `stream_writer` has the protocol between tasks and driver in its docstring.
"""

from tidelog.spark.sink.batch_writer import TidelogBatchWriter
from tidelog.spark.sink.options import OPTION_NAMES, SinkOptions, parse_sink_options
from tidelog.spark.sink.stream_writer import TidelogStreamWriter

__all__ = [
    "OPTION_NAMES",
    "SinkOptions",
    "TidelogBatchWriter",
    "TidelogStreamWriter",
    "parse_sink_options",
]
