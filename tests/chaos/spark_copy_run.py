"""A process of its own that copies a topic with Spark, started by the tests that kill it.

    python -m tests.chaos.spark_copy_run BOOTSTRAP FROM TO CHECKPOINT (forever|drain)

TO is a topic, or with a slash the path of a Delta table. Each copy tells where it comes from,
PARTITION-OFFSET: in its key, or in the column `origin`. `forever` starts the query again whenever
it fails, as the supervisor of pipelines does; `drain` ends when everything is copied.
"""

import sys
import time

from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from tidelog.spark.lake.sink import LakeDataSource
from tidelog.spark.runtime.session import session

_PAUSE_S = 0.2
_ROWS_PER_BATCH = 10_000


def start(
    spark: SparkSession, bootstrap: str, source: str, target: str, checkpoint: str, drain: bool
) -> StreamingQuery:
    rows = (
        spark.readStream.format("tidelog")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("subscribe", source)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", _ROWS_PER_BATCH)
        .load()
    )
    origin = "concat(partition, '-', offset)"
    if "/" in target:
        copies = rows.selectExpr(f"{origin} AS origin", "value")
        writer = copies.writeStream.format("tidelog-lake").option("path", target)
    else:
        copies = rows.selectExpr(f"{origin} AS key", "value")
        writer = copies.writeStream.format("tidelog").option("topic", target)
        writer = writer.option("kafka.bootstrap.servers", bootstrap)
    writer = writer.option("checkpointLocation", checkpoint)
    if drain:
        return writer.trigger(availableNow=True).start()
    return writer.trigger(processingTime="0 seconds").start()


def main(bootstrap: str, source: str, target: str, checkpoint: str, mode: str) -> None:
    spark = session("copy", master="local[2,4]", conf={"spark.driver.memory": "1g"})
    spark.dataSource.register(LakeDataSource)
    while True:
        query = start(spark, bootstrap, source, target, checkpoint, mode == "drain")
        try:
            query.awaitTermination()
        except StreamingQueryException as error:
            sys.stderr.write(f"the query failed: {str(error)[-3000:]}\n")
            time.sleep(_PAUSE_S)
        else:
            return


if __name__ == "__main__":
    main(*sys.argv[1:])
