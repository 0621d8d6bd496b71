"""The broker for tests, as a user's test suite meets it."""

import time
from pathlib import Path

import pytest

from tidelog.client import connect
from tidelog.testing import Broker, BrokerError


def publish(broker: Broker, value: str) -> None:
    with connect(broker.bootstrap_servers) as client:
        client.create_topic("kept", partitions=1)
        client.publish("kept", value=value)
        client.flush()


def read(broker: Broker, count: int) -> list[bytes]:
    values: list[bytes] = []
    with connect(broker.bootstrap_servers) as client:
        for batch in client.consume("kept", group=f"read-{count}", idle_timeout_s=20):
            values += [message.value for message in batch]
            if len(values) >= count:
                break
    return values


def test_the_fixture_is_a_broker_that_serves(tidelog_broker: Broker) -> None:
    publish(tidelog_broker, "through the fixture")
    assert read(tidelog_broker, 1) == [b"through the fixture"]


def test_a_thread_broker_is_ready_fast_in_a_warm_interpreter(tidelog_broker: Broker) -> None:
    # It takes about 20 ms; several tries and a wide margin keep a busy machine from failing this.
    times_s = []
    for _ in range(5):
        start = time.perf_counter()
        with Broker():
            times_s.append(time.perf_counter() - start)
    assert min(times_s) < 0.15


def test_a_broker_of_its_own_removes_its_data() -> None:
    with Broker() as broker:
        data = broker.data
        assert data.exists()
    assert not data.exists()


def test_a_process_broker_comes_back_after_a_kill_and_a_stop(tmp_path: Path) -> None:
    with Broker(mode="process", data=tmp_path) as broker:
        publish(broker, "before the kill")
        broker.kill()
        broker.start()
        publish(broker, "before the stop")
        broker.stop()
        broker.start()
        assert read(broker, 2) == [b"before the kill", b"before the stop"]
    assert tmp_path.exists()


def test_wrong_use_and_wrong_settings_are_told() -> None:
    with Broker() as broker, pytest.raises(BrokerError, match="process mode"):
        broker.kill()
    with (
        pytest.raises(BrokerError, match=r"num\.partitions"),
        Broker(settings={"num.partition": "1"}),
    ):
        pass
    refused = Broker(mode="process", settings={"num.partition": "1"})
    with pytest.raises(BrokerError, match=r"num\.partitions"):
        refused.start()
    refused.close()
