"""Records that did not parse, as they go to a topic of their own.

    key        TOPIC-PARTITION-OFFSET of the record: the same each time it is written
    value      its value, untouched
    headers    its own, and then those of where it comes from, all as text but the key:
               tidelog.origin.topic, .partition, .offset, .timestamp (ms), .key (if it had one),
               tidelog.reason

They are written by the task that read them, before its rows go on, at least once: a task that Spark
runs again writes them again, and so does each action on a batch query. A reader tells copies by
their key, and a compacted topic keeps one of each.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from tidelog.spark.schema import ARROW_HEADERS

ORIGIN_PREFIX = "tidelog.origin."
REASON_HEADER = "tidelog.reason"

DEFAULT_CLIENT_ID = "tidelog-spark"

DEAD_LETTER_SCHEMA = pa.schema(
    [("key", pa.binary()), ("value", pa.binary()), ("headers", ARROW_HEADERS)]
)


@dataclass(frozen=True, slots=True)
class DeadLetterTopic:
    """Where dead letters go."""

    bootstrap: str
    topic: str
    client_id: str = DEFAULT_CLIENT_ID

    def write(self, batch: pa.RecordBatch, reasons: Mapping[int, str]) -> None:
        """Write the rows that have a reason, and wait until the brokers have them."""
        # Only a task that meets such rows needs the sink.
        from tidelog.spark.sink.at_least_once import write_at_least_once
        from tidelog.spark.sink.options import Guarantee, SinkOptions

        options = SinkOptions(
            bootstrap=self.bootstrap,
            topic=self.topic,
            guarantee=Guarantee.AT_LEAST_ONCE,
            client_id=self.client_id,
        )
        write_at_least_once(options, iter([dead_letters(batch, reasons)]))


def dead_letters(batch: pa.RecordBatch, reasons: Mapping[int, str]) -> pa.RecordBatch:
    """The rows that have a reason, as what is written of them."""
    rows = batch.take(pa.array(list(reasons), pa.int64())).select(
        ["key", "value", "topic", "partition", "offset", "timestamp", "headers"]
    )
    times_ms = pc.divide(rows.column("timestamp").cast(pa.int64()), 1000).to_pylist()
    keys, headers = [], []
    for row, time_ms, reason in zip(rows.to_pylist(), times_ms, reasons.values(), strict=True):
        keys.append(f"{row['topic']}-{row['partition']}-{row['offset']}".encode())
        origin = {
            "topic": row["topic"].encode(),
            "partition": b"%d" % row["partition"],
            "offset": b"%d" % row["offset"],
            "timestamp": None if time_ms is None else b"%d" % time_ms,
            "key": row["key"],
        }
        headers.append(
            [
                *(row["headers"] or ()),
                *(
                    {"key": ORIGIN_PREFIX + name, "value": value}
                    for name, value in origin.items()
                    if value is not None
                ),
                {"key": REASON_HEADER, "value": reason.encode(errors="replace")},
            ]
        )
    return pa.RecordBatch.from_arrays(
        [pa.array(keys, pa.binary()), rows.column("value"), pa.array(headers, ARROW_HEADERS)],
        schema=DEAD_LETTER_SCHEMA,
    )
