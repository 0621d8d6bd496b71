"""kill -9 of the broker under load: what was acknowledged is there afterwards, once, in order."""

import random
from pathlib import Path

import pytest

from tests.chaos.records_under_load import (
    Acknowledged,
    NumberedProducer,
    check_nothing_lost,
    read_everything,
)
from tidelog.client import connect
from tidelog.testing import Broker

PARTITIONS = 4


def kill_again_and_again(data: Path, rounds: int, seed: int) -> None:
    rng = random.Random(seed)
    everything = Acknowledged()
    # Small segments and a small journal: rolls and checkpoints happen between the kills too.
    settings = {"log.segment.bytes": "65536"}
    with Broker(mode="process", data=data, settings=settings) as broker:
        with connect(broker.bootstrap_servers) as client:
            client.create_topic("killed", partitions=PARTITIONS)
        for number in range(rounds):
            producer = NumberedProducer(
                broker.bootstrap_servers, "killed", prefix=f"r{number}", partitions=PARTITIONS
            )
            producer.send_for(rng.uniform(0.1, 0.5))
            broker.kill()
            broker.start()
            producer.drain()
            everything.places.update(producer.acknowledged.places)
        found = read_everything(broker.bootstrap_servers, "killed", PARTITIONS)
    check_nothing_lost(everything, found)
    assert len(everything.places) > rounds, "the load never got through: nothing was tested"


def test_acknowledged_records_survive_kills(tmp_path: Path) -> None:
    kill_again_and_again(tmp_path, rounds=24, seed=1)


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_acknowledged_records_survive_hundreds_of_kills(tmp_path: Path) -> None:
    for part in range(10):
        kill_again_and_again(tmp_path / str(part), rounds=30, seed=part)
