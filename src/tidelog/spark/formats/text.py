"""Values as text in UTF-8."""

import pyarrow as pa
from pyspark.sql.types import StringType, StructField, StructType

from tidelog.spark.formats.columns import PlainColumn, StructColumn
from tidelog.spark.formats.decoding import Decoded, decode_rows


class TextDecoder:
    """Decodes each value into the one column `value`. What is not UTF-8 is corrupt."""

    schema = StructType([StructField("value", StringType())])

    def decode(self, values: pa.Array) -> Decoded:
        try:
            return Decoded([values.cast(pa.string())], {})
        except pa.ArrowInvalid:
            column = StructColumn([("value", PlainColumn(StringType()))], lambda text: (text,))
            return decode_rows(values, bytes.decode, (UnicodeDecodeError,), column)
