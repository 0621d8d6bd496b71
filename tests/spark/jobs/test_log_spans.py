"""What a real log holds at offsets that gave no record."""

from confluent_kafka import Producer

from tidelog.protocol.topic_partition import TopicPartition
from tidelog.spark.jobs.log_spans import LogSpans
from tidelog.testing import Broker


def _transaction(broker: Broker, topic: str, values: list[bytes], *, commit: bool) -> None:
    producer = Producer(
        {"bootstrap.servers": broker.bootstrap_servers, "transactional.id": f"t-{topic}"}
    )
    producer.init_transactions(30)
    producer.begin_transaction()
    for value in values:
        producer.produce(topic, value, partition=0)
    producer.flush(30)
    if commit:
        producer.commit_transaction(30)
    else:
        producer.abort_transaction(30)


def test_markers_and_aborted_records_are_no_data(broker: Broker, topic: str) -> None:
    _transaction(broker, topic, [b"0", b"1"], commit=True)  # marker at 2
    _transaction(broker, topic, [b"3", b"4"], commit=False)  # marker at 5
    _transaction(broker, topic, [b"6"], commit=True)  # marker at 7
    spans = LogSpans(broker.bootstrap_servers, TopicPartition(topic, 0))
    assert spans.holds_no_data(2, 5)
    assert spans.holds_no_data(2, 2)
    assert spans.holds_no_data(7, 7)
    assert not spans.holds_no_data(1, 2)
    assert not spans.holds_no_data(5, 6)
    assert not spans.holds_no_data(7, 8)
    assert not spans.holds_no_data(100, 101)
    # Asked in any order, and anew.
    assert LogSpans(broker.bootstrap_servers, TopicPartition(topic, 0)).holds_no_data(5, 5)
    assert spans.holds_no_data(3, 4)
