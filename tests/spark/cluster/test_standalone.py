"""The source, the sink and the lake on a standalone cluster whose executors are killed."""

import random
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from tests.spark.cluster.standalone import StandaloneCluster
from tests.spark.topics import create_topic
from tidelog.spark import lake, session
from tidelog.testing import Broker

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600)]

PARTITIONS = 4


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StandaloneCluster]:
    with StandaloneCluster(tmp_path_factory.mktemp("standalone")) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def spark(cluster: StandaloneCluster) -> Iterator[SparkSession]:
    conf = {"spark.executor.memory": "600m", "spark.driver.memory": "1g"}
    spark = session("tidelog-cluster-tests", master=cluster.url, conf=conf)
    yield spark
    spark.stop()


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker(mode="process") as broker:
        yield broker


def make_topic(broker: Broker, name: str) -> str:
    create_topic(broker.bootstrap_servers, name, PARTITIONS)
    return name


def publish(broker: Broker, topic: str, rows: range) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "linger.ms": 20})
    for each in rows:
        producer.produce(topic, b"value-%d" % each, b"key-%d" % each)
        producer.poll(0)
    assert producer.flush(60) == 0


def read(spark: SparkSession, broker: Broker, topic: str) -> DataFrame:
    reader = spark.read.format("tidelog")
    return reader.options(
        **{"kafka.bootstrap.servers": broker.bootstrap_servers, "subscribe": topic}
    ).load()


def committed_values(broker: Broker, topic: str, expected: int) -> list[bytes]:
    """What a read_committed consumer sees: until the expected number is there and no more comes."""
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap_servers,
            "group.id": "check",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
        }
    )
    consumer.assign([TopicPartition(topic, each, OFFSET_BEGINNING) for each in range(PARTITIONS)])
    values: list[bytes] = []
    deadline = time.monotonic() + 60
    quiet_since = time.monotonic()
    while time.monotonic() < deadline:
        message = consumer.poll(0.2)
        if message is not None and not message.error():
            values.append(message.value())
            quiet_since = time.monotonic()
        elif len(values) >= expected and time.monotonic() - quiet_since > 2:
            break
    consumer.close()
    return values


def test_rows_written_by_the_cluster_are_read_by_the_cluster(
    spark: SparkSession, broker: Broker, cluster: StandaloneCluster
) -> None:
    topic = make_topic(broker, "cluster-batch")
    rows = spark.range(0, 20_000, numPartitions=4).select(
        f.col("id").cast("string").alias("key"),
        f.concat(f.lit("value-"), f.col("id")).alias("value"),
    )
    rows.write.format("tidelog").options(
        **{"kafka.bootstrap.servers": broker.bootstrap_servers, "topic": topic}
    ).mode("append").save()
    found = read(spark, broker, topic).select(
        f.col("value").cast("string"), f.col("partition"), f.col("offset")
    )
    assert found.count() == 20_000
    assert found.select("value").distinct().count() == 20_000
    assert len(cluster.executors()) == 2


def test_a_stream_lands_once_while_executors_are_killed(
    spark: SparkSession, broker: Broker, cluster: StandaloneCluster, tmp_path: Path
) -> None:
    topic, target = make_topic(broker, "cluster-in"), make_topic(broker, "cluster-out")
    rng = random.Random(4)
    brokers = {"kafka.bootstrap.servers": broker.bootstrap_servers}
    query = (
        spark.readStream.format("tidelog")
        .options(**brokers, subscribe=topic, startingOffsets="earliest")
        .option("maxOffsetsPerTrigger", 4_000)
        .load()
        .select("key", "value")
        .writeStream.format("tidelog")
        .options(**brokers, topic=target, checkpointLocation=str(tmp_path / "checkpoint"))
        .start()
    )
    sent = 0
    try:
        for _ in range(4):
            publish(broker, topic, range(sent, sent + 10_000))
            sent += 10_000
            time.sleep(rng.uniform(0.2, 1.5))
            _kill_one_executor(cluster, rng)
        query.processAllAvailable()
    finally:
        query.stop()
    values = committed_values(broker, target, sent)
    assert len(values) == sent
    assert set(values) == {b"value-%d" % each for each in range(sent)}


def test_an_archive_by_the_cluster_holds_every_offset_once(
    spark: SparkSession, broker: Broker, tmp_path: Path
) -> None:
    topic = make_topic(broker, "cluster-lake")
    publish(broker, topic, range(15_000))
    table = str(tmp_path / "lake")
    for _ in range(2):
        lake.archive(
            [topic],
            table,
            spark=spark,
            bootstrap=broker.bootstrap_servers,
            checkpoint=str(tmp_path / "checkpoint"),
        )
    live = read(spark, broker, topic)
    reader = spark.read.format("tidelog").option("lake", table)
    both = reader.options(
        **{"kafka.bootstrap.servers": broker.bootstrap_servers, "subscribe": topic}
    ).load()
    keys = ["partition", "offset", "key", "value"]
    assert both.count() == 15_000
    assert both.select(keys).exceptAll(live.select(keys)).count() == 0


def _kill_one_executor(cluster: StandaloneCluster, rng: random.Random) -> None:
    executors = cluster.executors()
    if executors:
        try:
            rng.choice(executors).send_signal(signal.SIGKILL)
        except psutil.NoSuchProcess:
            pass
