"""The Python SDK: publish, consume, commit, and a worker loop that loses nothing.

    import tidelog.client

    with tidelog.client.connect("localhost:9092") as client:
        client.create_topic("orders", partitions=3)
        client.publish("orders", key="42", value=b"one espresso")
        client.flush()
        for batch in client.consume("orders", group="billing", max_batch=500):
            for message in batch:
                ...
            batch.commit()

It stands on confluent-kafka (`pip install "tidelog[client]"`), so it works with any Kafka broker.
"""

from importlib import import_module
from typing import TYPE_CHECKING

from tidelog.client.backoff import Backoff
from tidelog.client.errors import (
    ClientError,
    ConnectError,
    ConsumeError,
    PublishError,
    SerializationError,
)

if TYPE_CHECKING:
    from tidelog.client.consuming import Batch, Subscription
    from tidelog.client.message import Headers, Message
    from tidelog.client.publishing import Delivery
    from tidelog.client.session import Client, connect
    from tidelog.client.worker import Worker, WorkerReport

__all__ = [
    "Backoff",
    "Batch",
    "Client",
    "ClientError",
    "ConnectError",
    "ConsumeError",
    "Delivery",
    "Headers",
    "Message",
    "PublishError",
    "SerializationError",
    "Subscription",
    "Worker",
    "WorkerReport",
    "connect",
]

# Imported when they are asked for: who only needs the wire client does not wait for librdkafka.
_PLACES = {
    "Batch": "consuming",
    "Client": "session",
    "Delivery": "publishing",
    "Headers": "message",
    "Message": "message",
    "Subscription": "consuming",
    "Worker": "worker",
    "WorkerReport": "worker",
    "connect": "session",
}


def __getattr__(name: str) -> object:
    place = _PLACES.get(name)
    if place is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        found = getattr(import_module(f"{__name__}.{place}"), name)
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            f'{__name__}.{name} needs {error.name}: pip install "tidelog[client]"', name=error.name
        ) from error
    globals()[name] = found
    return found
