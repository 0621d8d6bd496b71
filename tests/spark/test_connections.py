import subprocess
import sys

import pytest

from tidelog.client.cluster import Address
from tidelog.client.errors import ConnectError
from tidelog.spark.connections import close_idle_clusters, lent_cluster
from tidelog.testing import Broker
from tidelog.testing.broker import free_port


@pytest.fixture
def bootstrap(broker: Broker) -> str:
    return broker.bootstrap_servers


def test_a_cluster_is_lent_again(bootstrap: str) -> None:
    with lent_cluster(bootstrap, "again") as first:
        first.cluster.metadata([])
    with lent_cluster(bootstrap, "again") as second:
        assert second is first
    with lent_cluster(bootstrap, "another") as third:
        assert third is not first


def test_a_cluster_has_one_user_at_a_time(bootstrap: str) -> None:
    with lent_cluster(bootstrap, "nested") as outer, lent_cluster(bootstrap, "nested") as inner:
        assert inner is not outer
        inner.cluster.metadata([])
        outer.cluster.metadata([])


def test_a_cluster_is_not_kept_after_an_exception(bootstrap: str) -> None:
    with pytest.raises(RuntimeError), lent_cluster(bootstrap, "failed") as first:
        raise RuntimeError
    with lent_cluster(bootstrap, "failed") as second:
        assert second is not first
        second.cluster.metadata([])


def test_what_was_heard_outlives_the_connections_that_it_was_heard_on(bootstrap: str) -> None:
    with pytest.raises(RuntimeError), lent_cluster(bootstrap, "heard") as first:
        first.cluster.metadata([])
        raise RuntimeError
    with lent_cluster(bootstrap, "heard by another") as second:
        assert second.cluster.view is first.cluster.view
        assert second.cluster.view.brokers


def test_no_kept_cluster_outlives_its_broker(bootstrap: str) -> None:
    with lent_cluster(bootstrap, "gone") as first:
        pass
    with pytest.raises(ConnectError), lent_cluster(bootstrap, "gone") as lent:
        assert lent is first
        with lent_cluster(bootstrap, "gone") as idle:
            pass
        lent.cluster.connect(Address("127.0.0.1", free_port()))
    with lent_cluster(bootstrap, "gone") as later:
        assert later is not first
        assert later is not idle


def test_idle_clusters_can_be_closed(bootstrap: str) -> None:
    with lent_cluster(bootstrap, "closed") as first:
        pass
    close_idle_clusters()
    with lent_cluster(bootstrap, "closed") as second:
        assert second is not first


FORK = """
import os, sys
from tidelog.spark.connections import lent_cluster
bootstrap = sys.argv[1]
with lent_cluster(bootstrap) as first:
    first.cluster.metadata([])
child = os.fork()
if not child:
    with lent_cluster(bootstrap) as made:
        made.cluster.metadata([])
        os._exit(0 if made is not first else 1)
_, status = os.waitpid(child, 0)
with lent_cluster(bootstrap) as again:
    again.cluster.metadata([])
    sys.exit(os.waitstatus_to_exitcode(status) or again is not first)
"""


def test_a_forked_child_connects_by_itself(bootstrap: str) -> None:
    ran = subprocess.run(
        [sys.executable, "-c", FORK, bootstrap],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert ran.returncode == 0, ran.stderr
