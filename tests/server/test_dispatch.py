"""Answers that handlers promise: in time or late, kept or not, in the order of the requests."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace

import pytest

from tests.server.running_node import RunningNode
from tidelog.errors import TidelogError
from tidelog.promise import Promise
from tidelog.protocol.api_keys import ApiKey
from tidelog.protocol.apis.describe_cluster import (
    DescribeClusterRequest,
    DescribeClusterResponse,
)
from tidelog.protocol.apis.metadata import MetadataRequest
from tidelog.protocol.errors import ApiError, ErrorCode
from tidelog.testing.wire import ConnectionEnded

Settle = Callable[[Promise[DescribeClusterResponse]], None]


def keep(promise: Promise[DescribeClusterResponse]) -> None:
    promise.resolve(DescribeClusterResponse(cluster_id="promised"))


def fail(promise: Promise[DescribeClusterResponse]) -> None:
    promise.fail(ApiError(ErrorCode.NOT_CONTROLLER, "it moved"))


def fail_unexpectedly(promise: Promise[DescribeClusterResponse]) -> None:
    promise.fail(TidelogError("nobody thought of this"))


def fail_by_a_bug(promise: Promise[DescribeClusterResponse]) -> None:
    promise.fail(KeyError("a bug"))


@pytest.fixture
def promises(served: RunningNode) -> list[Promise[DescribeClusterResponse]]:
    """Those that DescribeCluster gives from now on."""
    given: list[Promise[DescribeClusterResponse]] = []

    def handle(*_: object) -> Promise[DescribeClusterResponse]:
        promise: Promise[DescribeClusterResponse] = Promise()
        given.append(promise)
        return promise

    handlers = served.node.handlers
    key = int(ApiKey.DESCRIBE_CLUSTER)
    handlers[key] = replace(handlers[key], handle=handle)  # type: ignore[arg-type]
    return given


def wait_for(promises: list[Promise[DescribeClusterResponse]], count: int) -> None:
    deadline = time.monotonic() + 10
    while len(promises) < count:
        assert time.monotonic() < deadline, "the handler was not called"
        time.sleep(0.01)


@pytest.mark.parametrize(
    ("settle", "code", "cluster_id"),
    [
        (keep, ErrorCode.NONE, "promised"),
        (fail, ErrorCode.NOT_CONTROLLER, ""),
        (fail_unexpectedly, ErrorCode.UNKNOWN_SERVER_ERROR, ""),
        (fail_by_a_bug, ErrorCode.UNKNOWN_SERVER_ERROR, ""),
    ],
)
def test_a_late_promise_is_answered_when_it_is_settled(
    served: RunningNode,
    promises: list[Promise[DescribeClusterResponse]],
    settle: Settle,
    code: ErrorCode,
    cluster_id: str,
) -> None:
    client = served.client()
    first = client.send(DescribeClusterRequest(), 1)
    second = client.send(MetadataRequest(topics=[]), 9)
    wait_for(promises, 1)
    served.call(lambda: settle(promises[0]))
    answered, response = client.receive()
    assert answered == first
    assert (response.error_code, response.cluster_id) == (code, cluster_id)
    assert client.receive()[0] == second
    is_bug = code is ErrorCode.UNKNOWN_SERVER_ERROR
    assert served.node.metrics.handler_failures == int(is_bug)


@pytest.mark.parametrize(
    ("promise", "code"),
    [
        (Promise.of(DescribeClusterResponse()), ErrorCode.NONE),
        (Promise.failed(ApiError(ErrorCode.NOT_CONTROLLER)), ErrorCode.NOT_CONTROLLER),
    ],
)
def test_a_settled_promise_is_answered_at_once(
    served: RunningNode, promise: Promise[DescribeClusterResponse], code: ErrorCode
) -> None:
    handlers = served.node.handlers
    key = int(ApiKey.DESCRIBE_CLUSTER)
    handlers[key] = replace(handlers[key], handle=lambda *_: promise)  # type: ignore[arg-type]
    assert served.client().call(DescribeClusterRequest(), 1).error_code == code


def test_a_promise_that_outlives_its_client_is_settled_in_vain(
    served: RunningNode, promises: list[Promise[DescribeClusterResponse]]
) -> None:
    client = served.client()
    client.send(DescribeClusterRequest(), 1)
    wait_for(promises, 1)
    client.close()
    served.call(lambda: None)
    served.call(lambda: keep(promises[0]))
    assert served.client().call(MetadataRequest(topics=[]), 9).topics == []


def test_an_answer_that_cannot_be_encoded_ends_its_connection_alone(
    served: RunningNode, promises: list[Promise[DescribeClusterResponse]]
) -> None:
    client, other = served.client(), served.client()
    client.send(DescribeClusterRequest(), 1)
    wait_for(promises, 1)
    other.send(DescribeClusterRequest(), 1)
    wait_for(promises, 2)
    served.call(lambda: promises[0].resolve(DescribeClusterResponse(cluster_id=7)))  # type: ignore[arg-type]
    with pytest.raises(ConnectionEnded):
        client.receive()
    served.call(lambda: keep(promises[1]))
    assert other.receive()[1].cluster_id == "promised"
    assert served.node.metrics.handler_failures == 1
