"""One Spark session and one broker for all tests of Tidelog on Spark."""

import itertools
import os
from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from tidelog.spark.runtime.session import session
from tidelog.testing import Broker

_numbers = itertools.count()


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    made = session("tidelog-tests", master="local[2,4]", conf={"spark.driver.memory": "2g"})
    yield made
    made.stop()


@pytest.fixture(scope="session")
def broker() -> Iterator[Broker]:
    with Broker(mode="process") as broker:
        yield broker


@pytest.fixture
def topic() -> str:
    """A name that no other test uses."""
    return f"spark-{os.getpid()}-{next(_numbers)}"
