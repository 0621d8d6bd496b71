"""Calls that find leaders and coordinators while they move, against scripted brokers."""

from __future__ import annotations

import re
import threading

import pytest

from tests.client.cluster.scripted_broker import Answer, ScriptedBroker
from tests.client.cluster.scripted_cluster import ScriptedCluster, orders
from tidelog.client.cluster import (
    COORDINATOR_GROUP,
    LATEST,
    RETRIABLE,
    Cluster,
    ClusterClient,
    Stale,
    Topics,
)
from tidelog.client.errors import BrokerError, ClientError, RetriesExhausted
from tidelog.protocol.api_keys import ApiKey
from tidelog.protocol.apis.create_topics import CreateTopicsRequest
from tidelog.protocol.apis.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from tidelog.protocol.apis.describe_quorum import DescribeQuorumRequest, DescribeQuorumResponse
from tidelog.protocol.apis.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from tidelog.protocol.apis.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.topic_partition import TopicPartition

LEADER_MOVED = [code for code, stale in RETRIABLE.items() if stale & Stale.METADATA]
COORDINATOR_MOVED = [code for code, stale in RETRIABLE.items() if stale & Stale.COORDINATOR]
TAKES_TIME = [code for code, stale in RETRIABLE.items() if stale is Stale.NOTHING]


def test_a_broker_that_knows_no_controller_is_not_asked_again_before_the_others() -> None:
    asked: list[int] = []

    def broker(number: int, code: ErrorCode) -> ScriptedBroker:
        def describe(_: DescribeQuorumRequest) -> DescribeQuorumResponse:
            asked.append(number)
            return DescribeQuorumResponse(error_code=code)

        return ScriptedBroker({ApiKey.DESCRIBE_QUORUM: describe}, {ApiKey.DESCRIBE_QUORUM: (0, 2)})

    with broker(0, ErrorCode.NOT_CONTROLLER) as first, broker(1, ErrorCode.NONE) as second:
        bootstrap = f"{first.bootstrap},{second.bootstrap}"
        with Cluster(bootstrap, timeout_s=10.0) as cluster:
            client = ClusterClient(cluster, 10.0)
            for _ in range(2):
                answer = client.ask_any(
                    DescribeQuorumRequest(), DescribeQuorumResponse, lambda each: each.error_code
                )
                assert answer.error_code == 0
    assert asked == [0, 1, 1]


def ask_leader(client: ClusterClient, partition: int = 0) -> tuple[int, int]:
    """The error and the offset that the leader answers with."""
    rows = [ListOffsetsPartition(partition_index=partition, timestamp=LATEST)]
    request = ListOffsetsRequest(
        replica_id=-1, topics=[ListOffsetsTopic(name="orders", partitions=rows)]
    )
    answer = client.ask_leader(
        orders(partition),
        request,
        ListOffsetsResponse,
        lambda response: response.topics[0].partitions[0].error_code,
    )
    row = answer.topics[0].partitions[0]
    return row.error_code, row.offset


def commit(client: ClusterClient, *groups: str) -> dict[str, int]:
    """The errors that the coordinators of groups answer with."""
    rows = [OffsetCommitRequestPartition(partition_index=0, committed_offset=1)]
    topics = [OffsetCommitRequestTopic(name="orders", partitions=rows)]
    answers = client.ask_coordinators(
        COORDINATOR_GROUP,
        {group: OffsetCommitRequest(group_id=group, topics=topics) for group in groups},
        OffsetCommitResponse,
        lambda response: response.topics[0].partitions[0].error_code,
    )
    return {group: answer.topics[0].partitions[0].error_code for group, answer in answers.items()}


def list_ends(client: ClusterClient, *names: TopicPartition) -> dict[TopicPartition, int]:
    return client.list_offsets([dict.fromkeys(names, LATEST)])[0]


# Leaders


def test_a_leader_is_asked_for_once() -> None:
    script = ScriptedCluster(leaders={0: [1]})
    with script.client() as client:
        assert ask_leader(client) == (0, 100)
        assert ask_leader(client) == (0, 100)
    assert script.metadata_count == 1
    assert script.asked == [(1, "list")] * 2


@pytest.mark.parametrize("code", LEADER_MOVED)
def test_a_leader_that_has_moved_is_found(code: ErrorCode) -> None:
    script = ScriptedCluster(leaders={0: [0, 1]}, refusals={0: [code]})
    with script.client() as client:
        assert ask_leader(client) == (0, 100)
    assert script.asked == [(0, "list"), (1, "list")]


def test_a_partition_without_a_leader_is_waited_for() -> None:
    script = ScriptedCluster(leaders={0: [-1, -1, 1]})
    with script.client() as client:
        assert ask_leader(client) == (0, 100)
    assert script.metadata_count == 3


@pytest.mark.parametrize("code", TAKES_TIME)
def test_a_leader_that_needs_time_stays_the_leader(code: ErrorCode) -> None:
    script = ScriptedCluster(leaders={0: [0, 1]}, refusals={0: [code, code]})
    with script.client() as client:
        assert ask_leader(client) == (0, 0)
    assert script.metadata_count == 1


def test_the_leader_of_a_node_that_vanished_is_found() -> None:
    script = ScriptedCluster(leaders={0: [0, 1]})
    with script.client() as client:
        assert ask_leader(client) == (0, 0)
        script.brokers[0].stop()
        assert ask_leader(client) == (0, 100)


@pytest.mark.parametrize(
    "code", [ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.NOT_COORDINATOR, 999]
)
def test_any_other_error_is_the_answer(code: int) -> None:
    """Also one that says something of coordinators, which this call does not go by."""
    script = ScriptedCluster(refusals={0: [ErrorCode(code)]})
    with script.client() as client:
        assert ask_leader(client)[0] == code
    assert script.asked == [(0, "list")]


def test_an_api_that_the_broker_does_not_serve_fails_at_once() -> None:
    with (
        ScriptedCluster().client() as client,
        pytest.raises(ClientError, match="does not serve DESCRIBE_GROUPS"),
    ):
        client.ask_any(DescribeGroupsRequest(), DescribeGroupsResponse, lambda _: 0)


# Offsets of many partitions


def test_offsets_come_from_all_leaders() -> None:
    script = ScriptedCluster(leaders={0: [0], 1: [1], 2: [0]})
    with script.client() as client:
        ends, starts = client.list_offsets(
            [dict.fromkeys([orders(0), orders(1), orders(2)], LATEST), {orders(1): -2}]
        )
    assert ends == {orders(0): 0, orders(1): 101, orders(2): 2}
    assert starts == {orders(1): 101}
    assert script.metadata_count == 1


def test_only_the_partition_that_moved_is_asked_for_again() -> None:
    script = ScriptedCluster(
        leaders={0: [0, 1], 1: [0]}, refusals={0: [ErrorCode.NOT_LEADER_OR_FOLLOWER]}
    )
    with script.client() as client:
        assert list_ends(client, orders(0), orders(1)) == {orders(0): 100, orders(1): 1}
    assert script.partitions_asked == [[0, 1], [0]]


def test_partitions_that_do_not_exist_are_left_out() -> None:
    with ScriptedCluster().client() as client:
        asked = [orders(0), orders(7), TopicPartition("no-such-topic", 0)]
        assert list_ends(client, *asked) == {orders(0): 0}


def test_offsets_that_a_broker_refuses_are_an_error() -> None:
    script = ScriptedCluster(refusals={0: [ErrorCode.TOPIC_AUTHORIZATION_FAILED]})
    with (
        script.client() as client,
        pytest.raises(BrokerError, match="orders-0: TOPIC_AUTHORIZATION_FAILED"),
    ):
        list_ends(client, orders(0))
    assert len(script.asked) == 1


def test_offsets_outlive_a_leader_that_vanished() -> None:
    script = ScriptedCluster(leaders={0: [0, 1], 1: [1]})
    with script.client() as client:
        assert list_ends(client, orders(0), orders(1)) == {orders(0): 0, orders(1): 101}
        script.brokers[0].stop()
        assert list_ends(client, orders(0), orders(1)) == {orders(0): 100, orders(1): 101}


# Coordinators


@pytest.mark.parametrize("code", COORDINATOR_MOVED)
def test_a_coordinator_that_has_moved_is_found(code: ErrorCode) -> None:
    script = ScriptedCluster(coordinators=[0, 1], refusals={0: [code]})
    with script.client() as client:
        assert commit(client, "g") == {"g": 0}
    # Any broker tells who coordinates; here it is the first.
    assert script.asked == [(0, "find"), (0, "commit"), (0, "find"), (1, "commit")]


@pytest.mark.parametrize(
    "code", [ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.CONCURRENT_TRANSACTIONS]
)
def test_a_coordinator_that_loads_stays_the_coordinator(code: ErrorCode) -> None:
    script = ScriptedCluster(coordinators=[1], refusals={1: [code, code]})
    with script.client() as client:
        assert commit(client, "g") == {"g": 0}
        assert commit(client, "g") == {"g": 0}
    assert script.asked == [(0, "find"), *[(1, "commit")] * 4]


@pytest.mark.parametrize(
    "code", [ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS]
)
def test_a_coordinator_that_is_not_there_yet_is_waited_for(code: ErrorCode) -> None:
    script = ScriptedCluster(coordinators=[code, code, 1])
    with script.client() as client:
        assert commit(client, "g") == {"g": 0}
    assert script.asked == [*[(0, "find")] * 3, (1, "commit")]


def test_a_coordinator_that_is_refused_is_an_error() -> None:
    script = ScriptedCluster(coordinators=[ErrorCode.GROUP_AUTHORIZATION_FAILED])
    with (
        script.client() as client,
        pytest.raises(BrokerError, match="the coordinator of g: GROUP_AUTHORIZATION_FAILED"),
    ):
        commit(client, "g")
    assert len(script.asked) == 1


def test_the_coordinator_of_a_node_that_vanished_is_found() -> None:
    script = ScriptedCluster(coordinators=[1, 0])
    with script.client() as client:
        assert commit(client, "g") == {"g": 0}
        script.brokers[1].stop()
        assert commit(client, "g") == {"g": 0}
    assert script.asked == [(0, "find"), (1, "commit"), (0, "find"), (0, "commit")]


def test_what_a_coordinator_says_of_a_partition_is_the_answer() -> None:
    script = ScriptedCluster(refusals={0: [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]})
    with script.client() as client:
        assert commit(client, "g") == {"g": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}


def test_many_are_asked_at_once_and_those_that_failed_again() -> None:
    groups = [f"g{number}" for number in range(250)]
    script = ScriptedCluster(refusals={0: [ErrorCode.NOT_COORDINATOR]})
    with script.client() as client:
        assert commit(client, *groups) == dict.fromkeys(groups, 0)
    assert [name for _, name in script.asked].count("commit") == 251


# Any broker


def test_another_broker_is_asked_when_one_vanishes() -> None:
    script = ScriptedCluster(coordinators=[2])
    with script.client(nodes=3) as client:
        client.metadata([])
        script.brokers[0].stop()
        assert commit(client, "g") == {"g": 0}
        script.brokers[1].stop()
        assert client.metadata([]).brokers
    assert script.asked == [(1, "find"), (2, "commit")]


def test_brokers_that_were_heard_of_are_asked_when_the_bootstrap_vanishes() -> None:
    script = ScriptedCluster()
    with script.client() as client:
        client.cluster._bootstrap = client.cluster._bootstrap[:1]
        client.metadata([])
        script.brokers[0].stop()
        assert client.metadata([]).brokers


# Changes


def test_a_change_that_is_not_answered_is_not_made_again() -> None:
    asked: list[CreateTopicsRequest] = []
    release = threading.Event()

    def create(request: CreateTopicsRequest) -> None:
        asked.append(request)
        release.wait(30)

    answers: dict[ApiKey, Answer] = {ApiKey.CREATE_TOPICS: create}
    with (
        ScriptedBroker(answers, {ApiKey.CREATE_TOPICS: (2, 7)}) as broker,
        Cluster(broker.bootstrap, timeout_s=0.2) as cluster,
    ):
        text = r"did not answer CREATE_TOPICS within 0\.2 s; it may be done all the same"
        with pytest.raises(ClientError, match=text):
            Topics(ClusterClient(cluster, 5.0)).create(["orders"])
        release.set()
    assert len(asked) == 1


# Deadlines


def test_what_takes_too_long_says_what_was_tried() -> None:
    codes = [ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.REQUEST_TIMED_OUT]
    script = ScriptedCluster(refusals={0: codes * 1000})
    text = (
        r"ListOffsetsRequest to the leader of orders-0: no success within 0\.2 s; tried \d+ times: "
        r"orders-0: \w+ \(\d+x\), orders-0: \w+ \(\d+x\); last: orders-0: \w+$"
    )
    with script.client(timeout_s=0.2) as client, pytest.raises(RetriesExhausted, match=text):
        ask_leader(client)
    assert 3 <= len(script.asked) <= 10


def test_a_cluster_that_is_away_is_named_with_every_address() -> None:
    script = ScriptedCluster()
    with script.client(timeout_s=0.05) as client:
        for each in script.brokers:
            each.stop()
        with pytest.raises(RetriesExhausted) as raised:
            client.metadata([])
    for each in script.brokers:
        assert re.search(f"no broker answers at {each.bootstrap}", str(raised.value))


def test_coordinators_have_a_deadline() -> None:
    script = ScriptedCluster(refusals={0: [ErrorCode.NOT_COORDINATOR] * 1000})
    with (
        script.client(timeout_s=0.05) as client,
        pytest.raises(RetriesExhausted, match=r"the coordinator of g: no success within 0\.05 s"),
    ):
        commit(client, "g")
