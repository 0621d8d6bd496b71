"""The example of Spark Declarative Pipelines, run by Spark's own command."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from confluent_kafka import Consumer

from tests.spark.topics import create_topic, eventually, publish
from tidelog.spark.runtime.cache_folder import cache_folder
from tidelog.spark.runtime.java import java_home
from tidelog.testing import Broker

_EXAMPLE = Path(__file__).parents[3] / "examples" / "declarative"
_RUN_TIMEOUT_S = 240


@pytest.mark.timeout(300)
def test_the_example_reads_and_writes_topics(broker: Broker, topic: str, tmp_path: Path) -> None:
    bootstrap = broker.bootstrap_servers
    create_topic(bootstrap, topic)
    create_topic(bootstrap, f"{topic}.large")
    orders = [
        {"id": 1, "customer": "Ada", "amount": 120.5},
        {"id": 2, "customer": "Grace", "amount": 20.0},
        {"id": 3, "customer": "Ada", "amount": 100.0},
    ]
    publish(bootstrap, topic, [json.dumps(order) for order in orders])

    project = tmp_path / "project"
    shutil.copytree(_EXAMPLE, project)
    specification = project / "spark-pipeline.yml"
    text = specification.read_text()
    storage = "file:///tmp/tidelog-declarative/storage"
    assert storage in text
    specification.write_text(text.replace(storage, (tmp_path / "storage").as_uri()))
    done = subprocess.run(
        [
            str(Path(sys.executable).parent / "spark-pipelines"),
            "run",
            *("--conf", "spark.sql.catalogImplementation=hive"),
            *("--conf", "spark.ui.enabled=false"),
            *("--conf", "spark.driver.host=127.0.0.1"),
            *("--conf", "spark.driver.bindAddress=127.0.0.1"),
            *("--conf", "spark.sql.shuffle.partitions=1"),
        ],
        cwd=project,
        env={
            **{name: value for name, value in os.environ.items() if name != "SPARK_HOME"},
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
            "PYSPARK_PYTHON": sys.executable,
            "JAVA_HOME": str(java_home(os.environ, cache_folder(os.environ))),
            "TIDELOG_BOOTSTRAP": bootstrap,
            "ORDERS_TOPIC": topic,
        },
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=_RUN_TIMEOUT_S,
        check=False,
    )
    assert done.returncode == 0, (done.stdout[-3000:], done.stderr[-3000:])
    assert _committed_values(bootstrap, f"{topic}.large", 2) == [orders[0], orders[2]]


def _committed_values(bootstrap: str, topic: str, count: int) -> list[object]:
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": f"{topic}-check",
            "auto.offset.reset": "earliest",
        }
    )
    consumer.subscribe([topic])
    found: list[object] = []

    def poll() -> bool:
        message = consumer.poll(0.2)
        if message is not None and message.error() is None:
            found.append(json.loads(message.value()))
        return len(found) >= count

    try:
        eventually(poll, f"{count} records in {topic}")
    finally:
        consumer.close()
    return found
