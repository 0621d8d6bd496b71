"""`tidelog txn`: list, describe and abort transactions."""

import time
from typing import Any

import click

from tidelog.cli.cluster_client import check, cluster_client
from tidelog.cli.failures import EXIT_NOT_FOUND, fail
from tidelog.cli.options import bootstrap_option, json_option
from tidelog.cli.output import console, print_json, print_rows, table
from tidelog.client.cluster import COORDINATOR_TRANSACTION, ClusterClient
from tidelog.protocol.apis.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    ProducerState,
    TopicRequest,
)
from tidelog.protocol.apis.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    TransactionState,
)
from tidelog.protocol.apis.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from tidelog.protocol.apis.list_transactions import (
    ListTransactionsRequest,
    ListTransactionsResponse,
)
from tidelog.protocol.apis.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from tidelog.protocol.topic_partition import TopicPartition

_FENCE_TIMEOUT_MS = 60_000


@click.group(name="txn")
def command() -> None:
    """List, describe and abort transactions."""


@command.command(name="list")
@click.option("--state", "states", multiple=True, help="Only these, for example Ongoing.")
@click.option("--producer-id", "producer_ids", type=int, multiple=True, help="Only these.")
@click.option("--longer-than", type=float, metavar="SECONDS", help="Only those open so long.")
@bootstrap_option
@json_option
def list_transactions(
    states: tuple[str, ...],
    producer_ids: tuple[int, ...],
    longer_than: float | None,
    bootstrap: str,
    as_json: bool,
) -> None:
    """List the transactional ids of a cluster."""
    request = ListTransactionsRequest(
        state_filters=list(states),
        producer_id_filters=list(producer_ids),
        duration_filter=-1 if longer_than is None else int(longer_than * 1000),
    )
    rows = []
    with cluster_client(bootstrap) as client:
        for answer in client.ask_brokers(
            request, ListTransactionsResponse, lambda response: response.error_code
        ):
            check(answer.error_code, "cannot list transactions")
            if answer.unknown_state_filters:
                fail(f"there is no state {', '.join(answer.unknown_state_filters)}")
            rows += [
                {
                    "transactional_id": each.transactional_id,
                    "producer_id": each.producer_id,
                    "state": each.transaction_state,
                }
                for each in answer.transaction_states
            ]
    rows.sort(key=lambda row: str(row["transactional_id"]))
    columns = ["transactional_id", "producer_id", "state"]
    print_rows(rows, columns, as_json=as_json, empty="no transactions")


@command.command()
@click.argument("transactional_id")
@bootstrap_option
@json_option
def describe(transactional_id: str, bootstrap: str, as_json: bool) -> None:
    """Show the state of a transactional id and the partitions of its open transaction."""
    with cluster_client(bootstrap) as client:
        state = _describe(client, transactional_id)
    check(state.error_code, f"cannot describe {transactional_id}")
    started_ms = state.transaction_start_time_ms
    view: dict[str, Any] = {
        "transactional_id": transactional_id,
        "state": state.transaction_state,
        "producer_id": state.producer_id,
        "producer_epoch": state.producer_epoch,
        "timeout_ms": state.transaction_timeout_ms,
        "started_ms": started_ms if started_ms >= 0 else None,
        "open_s": round(time.time() - started_ms / 1000, 1) if started_ms >= 0 else None,
    }
    partitions = [
        f"{topic.topic}-{number}" for topic in state.topics for number in sorted(topic.partitions)
    ]
    if as_json:
        print_json({**view, "partitions": partitions})
        return
    console().print(table([{**view, "partitions": partitions}], [*view, "partitions"]))


@command.command()
@click.argument("transactional_id", required=False)
@click.option(
    "--topic", help="With --partition and --producer-id: end one producer's hanging part."
)
@click.option("--partition", type=int)
@click.option("--producer-id", type=int)
@bootstrap_option
@json_option
def abort(
    transactional_id: str | None,
    topic: str | None,
    partition: int | None,
    producer_id: int | None,
    bootstrap: str,
    as_json: bool,
) -> None:
    """Abort the open transaction of a transactional id and fence its producer.

    With --topic, --partition and --producer-id instead, abort what a producer left open in one
    partition and no coordinator remembers any more.
    """
    by_place = (topic, partition, producer_id)
    if (transactional_id is None) == all(part is None for part in by_place):
        raise click.UsageError("give a transactional id, or --topic, --partition and --producer-id")
    with cluster_client(bootstrap) as client:
        if transactional_id is not None:
            done = _fence(client, transactional_id)
        elif topic is None or partition is None or producer_id is None:
            raise click.UsageError("--topic, --partition and --producer-id belong together")
        else:
            done = _abort_hanging(client, TopicPartition(topic, partition), producer_id)
    if as_json:
        print_json(done)
    else:
        click.echo(f"aborted {done['aborted']}")


def _describe(client: ClusterClient, transactional_id: str) -> TransactionState:
    answer = client.ask_coordinator(
        COORDINATOR_TRANSACTION,
        transactional_id,
        DescribeTransactionsRequest(transactional_ids=[transactional_id]),
        DescribeTransactionsResponse,
        lambda response: response.transaction_states[0].error_code,
    )
    return answer.transaction_states[0]


def _fence(client: ClusterClient, transactional_id: str) -> dict[str, Any]:
    check(_describe(client, transactional_id).error_code, f"cannot abort {transactional_id}")
    # The coordinator aborts first and lets the new epoch in when that is done; until then it
    # answers with a retriable error.
    answer = client.ask_coordinator(
        COORDINATOR_TRANSACTION,
        transactional_id,
        InitProducerIdRequest(
            transactional_id=transactional_id, transaction_timeout_ms=_FENCE_TIMEOUT_MS
        ),
        InitProducerIdResponse,
        lambda response: response.error_code,
    )
    check(answer.error_code, f"cannot abort {transactional_id}")
    return {"aborted": transactional_id, "producer_epoch": answer.producer_epoch}


def _abort_hanging(
    client: ClusterClient, partition: TopicPartition, producer_id: int
) -> dict[str, Any]:
    producer = _open_producer(client, partition, producer_id)
    marker = WritableTxnMarker(
        producer_id=producer_id,
        producer_epoch=producer.producer_epoch,
        transaction_result=False,
        topics=[
            WritableTxnMarkerTopic(name=partition.topic, partition_indexes=[partition.partition])
        ],
        coordinator_epoch=max(producer.coordinator_epoch, 0),
    )
    answer = client.ask_leader(
        partition,
        WriteTxnMarkersRequest(markers=[marker]),
        WriteTxnMarkersResponse,
        _marker_code,
    )
    check(_marker_code(answer), f"cannot abort in {partition}")
    return {"aborted": f"producer {producer_id} in {partition}"}


def _marker_code(response: WriteTxnMarkersResponse) -> int:
    return response.markers[0].topics[0].partitions[0].error_code


def _open_producer(
    client: ClusterClient, partition: TopicPartition, producer_id: int
) -> ProducerState:
    (topic,) = client.metadata([partition.topic]).topics
    check(topic.error_code, f"cannot look at {partition}")
    if all(row.partition_index != partition.partition for row in topic.partitions):
        fail(f"there is no partition {partition}", exit_code=EXIT_NOT_FOUND)
    request = DescribeProducersRequest(
        topics=[TopicRequest(name=partition.topic, partition_indexes=[partition.partition])]
    )
    answer = client.ask_leader(
        partition,
        request,
        DescribeProducersResponse,
        lambda response: response.topics[0].partitions[0].error_code,
    )
    row = answer.topics[0].partitions[0]
    check(row.error_code, f"cannot look at {partition}")
    for producer in row.active_producers:
        if producer.producer_id == producer_id and producer.current_txn_start_offset >= 0:
            return producer
    fail(
        f"producer {producer_id} has no open transaction in {partition}",
        exit_code=EXIT_NOT_FOUND,
    )
