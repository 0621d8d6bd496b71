"""From the topic `orders` to a table, a summary of it, and the topic `orders.large`."""

import os

from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

spark = SparkSession.active()

BOOTSTRAP = os.environ.get("TIDELOG_BOOTSTRAP", "localhost:9092")
ORDERS = os.environ.get("ORDERS_TOPIC", "orders")


@dp.table
def orders() -> DataFrame:
    """Every order of the topic, once."""
    return (
        spark.readStream.format("tidelog")
        .option("kafka.bootstrap.servers", BOOTSTRAP)
        .option("subscribe", ORDERS)
        .option("startingOffsets", "earliest")
        .option("valueFormat", "json")
        .option("valueSchema", "id INT, customer STRING, amount DOUBLE")
        .option("corruptRows", "fail")
        .load()
        .select("id", "customer", "amount", "timestamp")
    )


@dp.materialized_view
def customers() -> DataFrame:
    """What each customer has ordered, made anew in each run."""
    return (
        spark.read.table("orders")
        .groupBy("customer")
        .agg(F.count("*").alias("orders"), F.sum("amount").alias("amount"))
    )


dp.create_sink(
    "large_orders",
    "tidelog",
    {"kafka.bootstrap.servers": BOOTSTRAP, "topic": f"{ORDERS}.large"},
)


@dp.append_flow(target="large_orders")
def to_large_orders() -> DataFrame:
    """Orders of 100 or more, as JSON, by customer."""
    return (
        spark.readStream.table("orders")
        .where("amount >= 100")
        .select(
            F.col("customer").alias("key"),
            F.to_json(F.struct("id", "customer", "amount")).alias("value"),
        )
    )
