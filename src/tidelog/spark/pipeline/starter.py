"""The file that `tidelog pipeline init` writes."""

_TEXT = '''\
# A Tidelog pipeline. Check it with   tidelog pipeline validate {file}
#                     look at it with tidelog pipeline plan {file}
#                     run it with     tidelog pipeline run {file}
# Texts may hold ${{VARIABLES}} of the environment, with a default: ${{NAME:-default}}.
# Paths are relative to this file.

[pipeline]
name = "{name}"
# Where Spark keeps the progress of each sink. Keep it as long as the pipeline lives.
checkpoint = "checkpoints/{name}"
# How often micro-batches begin: "0 seconds" is as fast as possible. "available-now" reads what is
# there and ends.
trigger = "1 second"
# A failed query starts again from its checkpoint, later and later, unless it fails too often.
restart = {{ max = 5, window = "10 minutes", backoff = "1 second", backoff_max = "1 minute" }}
# How long a running micro-batch may take to finish when the pipeline is told to stop.
drain_timeout = "1 minute"

[brokers]
bootstrap = "${{TIDELOG_BOOTSTRAP:-localhost:9092}}"

[spark]
# Where Spark runs; without it on this machine. The option --master goes before it.
# master = "local[4,4]"
# conf."spark.sql.shuffle.partitions" = 4


# Sources and steps are views that SQL can read. A topic gives the columns key, value, topic,
# partition, offset, timestamp, timestampType, and with a format those of its schema.

[sources.orders]
topic = "orders"
starting_offsets = "earliest"
format = "json"
schema = "id BIGINT, customer BIGINT, amount DOUBLE, at TIMESTAMP"
# Values that do not parse go there instead of stopping the query.
dead_letter = "orders.dead"
# How late an order may be and still count.
watermark = {{ column = "at", delay = "10 minutes" }}
# Any option of the source by its name: options.maxOffsetsPerTrigger = 10000

# Data that does not stream can be joined: kind = "parquet", "csv", "json", "delta", "table" or SQL.
[sources.customers]
kind = "sql"
sql = """
SELECT * FROM VALUES (1, 'Ada'), (2, 'Grace') AS customers (customer, name)
"""

# An order that was sent twice counts once.
[steps.distinct_orders]
kind = "dedupe"
from = "orders"
keys = ["id"]

[steps.sales]
sql = """
SELECT window.start AS minute, name, count(*) AS orders, sum(amount) AS amount
FROM distinct_orders JOIN customers USING (customer)
GROUP BY window(at, '1 minute'), name
"""

# Where SQL is not enough: a function that takes DataFrames and returns one.
# [steps.scored]
# python = "functions.py:score"
# from = "sales"


# Each sink is one streaming query. Kinds: topic, parquet, delta, iceberg, console.

[sinks.sales]
from = "sales"
topic = "sales"
key = "name"
format = "json"

# [sinks.lake]
# kind = "delta"
# from = "distinct_orders"
# path = "lake/orders"
# trigger = "1 minute"
'''


def starter_text(name: str, file: str) -> str:
    """A commented pipeline that validates as it is."""
    return _TEXT.format(name=name, file=file)
