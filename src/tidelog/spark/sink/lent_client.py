"""The client of a cluster as writers borrow it: its connections are kept between micro-batches."""

from collections.abc import Iterator
from contextlib import contextmanager

from tidelog.client.cluster import ClusterClient
from tidelog.client.errors import ClientError, DeliveryTimeout
from tidelog.spark.connections import lent_cluster
from tidelog.spark.errors import SparkError
from tidelog.spark.sink.options import SinkOptions

# What is rolled back otherwise, if only later, is not worth waiting longer for.
ABORT_TIMEOUT_S_MAX = 10.0


@contextmanager
def lent_client(options: SinkOptions, *, to_abort: bool = False) -> Iterator[ClusterClient]:
    """The client for the time of the `with` block; its calls have kafka.delivery.timeout.ms.

    What brokers refuse, and what takes them too long, is a SparkError.
    """
    try:
        with lent_cluster(
            options.bootstrap, options.client_id, options.request_timeout_ms / 1000
        ) as pooled:
            client = ClusterClient(pooled.cluster, options.delivery_timeout_ms / 1000)
            if to_abort:
                shorten_timeout(client)
            yield client
    except DeliveryTimeout as error:
        raise SparkError(
            f"{error.partition}: records were not acknowledged within kafka.delivery.timeout.ms,"
            f" {error.timeout_s * 1000:.0f} ms, at last: {error.reason}"
        ) from error
    except ClientError as error:
        raise SparkError(str(error)) from error


def shorten_timeout(client: ClusterClient) -> None:
    """From now on, brokers that are away are not waited for long."""
    client.timeout_s = min(client.timeout_s, ABORT_TIMEOUT_S_MAX)
