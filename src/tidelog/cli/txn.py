"""`tidelog txn`: list, describe and abort transactions."""

import time
from typing import Any

import click

from tidelog.cli.failures import EXIT_NOT_FOUND, fail
from tidelog.cli.options import bootstrap_option, json_option
from tidelog.cli.output import console, print_json, print_rows, table
from tidelog.client.cluster import Cluster
from tidelog.client.errors import ClientError
from tidelog.protocol.apis.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    ProducerState,
    TopicRequest,
)
from tidelog.protocol.apis.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
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
from tidelog.protocol.errors import ErrorCode

_FENCE_TIMEOUT_MS = 60_000
_FENCE_TRIES = 50


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
    with _cluster(bootstrap) as cluster:
        for broker in cluster.brokers():
            answer = broker.call(request, ListTransactionsResponse)
            _check(answer.error_code, "cannot list transactions")
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
    with _cluster(bootstrap) as cluster:
        coordinator = cluster.transaction_coordinator(transactional_id)
        request = DescribeTransactionsRequest(transactional_ids=[transactional_id])
        state = coordinator.call(request, DescribeTransactionsResponse).transaction_states[0]
    _check(state.error_code, f"cannot describe {transactional_id}")
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
    with _cluster(bootstrap) as cluster:
        if transactional_id is not None:
            done = _fence(cluster, transactional_id)
        elif topic is None or partition is None or producer_id is None:
            raise click.UsageError("--topic, --partition and --producer-id belong together")
        else:
            done = _abort_hanging(cluster, topic, partition, producer_id)
    if as_json:
        print_json(done)
    else:
        click.echo(f"aborted {done['aborted']}")


def _fence(cluster: Cluster, transactional_id: str) -> dict[str, Any]:
    coordinator = cluster.transaction_coordinator(transactional_id)
    described = coordinator.call(
        DescribeTransactionsRequest(transactional_ids=[transactional_id]),
        DescribeTransactionsResponse,
    )
    _check(described.transaction_states[0].error_code, f"cannot abort {transactional_id}")
    request = InitProducerIdRequest(
        transactional_id=transactional_id, transaction_timeout_ms=_FENCE_TIMEOUT_MS
    )
    for _ in range(_FENCE_TRIES):
        answer = coordinator.call(request, InitProducerIdResponse)
        # The coordinator aborts first and lets the new epoch in when that is done.
        if answer.error_code != ErrorCode.CONCURRENT_TRANSACTIONS:
            break
        time.sleep(0.1)
    _check(answer.error_code, f"cannot abort {transactional_id}")
    return {"aborted": transactional_id, "producer_epoch": answer.producer_epoch}


def _abort_hanging(
    cluster: Cluster, topic: str, partition: int, producer_id: int
) -> dict[str, Any]:
    leader = cluster.leader(topic, partition)
    producer = _open_producer(cluster, topic, partition, producer_id)
    marker = WritableTxnMarker(
        producer_id=producer_id,
        producer_epoch=producer.producer_epoch,
        transaction_result=False,
        topics=[WritableTxnMarkerTopic(name=topic, partition_indexes=[partition])],
        coordinator_epoch=max(producer.coordinator_epoch, 0),
    )
    answer = leader.call(WriteTxnMarkersRequest(markers=[marker]), WriteTxnMarkersResponse)
    place = f"{topic}-{partition}"
    _check(answer.markers[0].topics[0].partitions[0].error_code, f"cannot abort in {place}")
    return {"aborted": f"producer {producer_id} in {place}"}


def _open_producer(cluster: Cluster, topic: str, partition: int, producer_id: int) -> ProducerState:
    request = DescribeProducersRequest(
        topics=[TopicRequest(name=topic, partition_indexes=[partition])]
    )
    answer = cluster.leader(topic, partition).call(request, DescribeProducersResponse)
    row = answer.topics[0].partitions[0]
    _check(row.error_code, f"cannot look at {topic}-{partition}")
    for producer in row.active_producers:
        if producer.producer_id == producer_id and producer.current_txn_start_offset >= 0:
            return producer
    fail(
        f"producer {producer_id} has no open transaction in {topic}-{partition}",
        exit_code=EXIT_NOT_FOUND,
    )


def _cluster(bootstrap: str) -> Cluster:
    try:
        return Cluster(bootstrap, client_id="tidelog-cli")
    except ClientError as error:
        fail(str(error))


def _check(error_code: int, doing: str) -> None:
    if not error_code:
        return
    code = ErrorCode(error_code)
    not_found = code in (
        ErrorCode.TRANSACTIONAL_ID_NOT_FOUND,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    )
    fail(f"{doing}: {code.name}", exit_code=EXIT_NOT_FOUND if not_found else 1)
