"""Dead letters on their way to a real broker."""

from confluent_kafka import Consumer, TopicPartition

from tests.spark.formats.source_batches import source_batch
from tests.spark.topics import create_topic
from tidelog.spark.formats import value_format
from tidelog.testing import Broker


def test_records_that_do_not_parse_go_to_their_topic_and_leave_the_rows(
    broker: Broker, topic: str
) -> None:
    create_topic(broker.bootstrap_servers, topic)
    made = value_format(
        {
            "valueFormat": "json",
            "valueSchema": "id int",
            "corruptRows": "deadLetter",
            "deadLetterTopic": topic,
            "kafka.bootstrap.servers": broker.bootstrap_servers,
        }
    )
    assert made is not None
    batch = source_batch([b'{"id":0}', b"?", b'{"id":2}', None, b"!"], with_headers=True)
    for _ in range(2):
        # The second time stands for a task that Spark runs again.
        decoded = made.decode(batch)
        assert decoded.column("id").to_pylist() == [0, 2, None]
        assert decoded.column("offset").to_pylist() == [100, 102, 103]
    consumer = Consumer({"bootstrap.servers": broker.bootstrap_servers, "group.id": topic})
    try:
        consumer.assign([TopicPartition(topic, 0, 0)])
        messages = consumer.consume(4, 30)
    finally:
        consumer.close()
    assert [(each.key(), each.value()) for each in messages] == [
        (b"orders-3-101", b"?"),
        (b"orders-3-104", b"!"),
    ] * 2
    headers = dict(messages[0].headers())
    assert headers["h"] == b"1"
    assert headers["tidelog.origin.key"] == b"k1"
    assert b"malformed" in headers["tidelog.reason"]
