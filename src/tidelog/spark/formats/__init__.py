"""What the values of a topic are: `valueFormat` and the columns that it gives.

Where to begin: `options` lists what a user can say, `value_format` has what becomes of a batch.
"""

from tidelog.spark.formats.options import OPTION_NAMES, value_format
from tidelog.spark.formats.value_format import ValueFormat

__all__ = ["OPTION_NAMES", "ValueFormat", "value_format"]
