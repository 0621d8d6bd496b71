"""`tidelog up --join`: what a node learns before it starts, and what it is refused for."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.conftest import run_command
from tidelog.cli.join import JoinError, find_place, free_node_id
from tidelog.cli.joined_cluster import recall, remember
from tidelog.cli.node_start import configure
from tidelog.client.cluster import Cluster, ClusterClient
from tidelog.client.cluster.cluster_state import ClusterMembers, cluster_members
from tidelog.server.configuration.node_config import NodeConfig
from tidelog.storage.directories.meta_properties import MetaProperties, write_meta_properties
from tidelog.supervision.node_process import NodeProcess
from tidelog.testing import Broker
from tidelog.testing.broker import free_port
from tidelog.world.operating_system.files import OsFiles


@pytest.fixture(scope="module")
def cluster() -> Iterator[Broker]:
    with Broker() as running:
        yield running


def settings_of(cluster: Broker, **more: str) -> dict[str, str]:
    return {
        "listeners": f"PLAINTEXT://127.0.0.1:{free_port()}",
        **{name.replace("_", "."): value for name, value in more.items()},
    }


def identify(directory: Path, cluster_id: str, node_id: int) -> None:
    directory.mkdir(exist_ok=True)
    write_meta_properties(OsFiles(), directory, MetaProperties(cluster_id, node_id, b"d" * 16))


def test_a_new_node_gets_the_cluster_id_a_free_node_id_and_the_addresses_of_the_voters(
    cluster: Broker, tmp_path: Path
) -> None:
    address = cluster.bootstrap_servers
    alias = address.replace("127.0.0.1", "localhost")
    config, has_new_id = configure(
        settings_of(cluster, log_dirs=f"{tmp_path}/a", controller_quorum_voters_max="5"), join=alias
    )
    assert has_new_id
    assert config.node_id == 2
    assert config.cluster_id == cluster.node.cluster_id
    assert config.controller_quorum_bootstrap_servers == (
        ("localhost", cluster.port),
        ("127.0.0.1", cluster.port),
    )
    assert config.controller_quorum_auto_join_enable
    assert not config.starts_new_cluster
    assert recall(config.log_dirs) == (
        None,
        {
            "controller.quorum.bootstrap.servers": f"{alias},{address}",
            "controller.quorum.auto.join.enable": "true",
            "controller.quorum.voters.max": "5",
        },
    )


class Joining:
    """A node in a process of its own that joins, without a node id of its own choice."""

    def __init__(self, folder: Path, name: str, join: str) -> None:
        self.settings = {
            "listeners": f"PLAINTEXT://127.0.0.1:{free_port()}",
            "log.dirs": str(folder / name),
        }
        self.output = folder / f"{name}.log"
        self.process = NodeProcess(self.settings, self.output, join=join)

    def await_ready(self) -> None:
        deadline = time.monotonic() + 60
        while not self.process.is_ready:
            assert self.process.status is None, self.process.last_words
            assert time.monotonic() < deadline, self.process.last_words
            time.sleep(0.02)


def members_of(bootstrap: str) -> ClusterMembers:
    with Cluster(bootstrap, timeout_s=5) as cluster:
        return cluster_members(ClusterClient(cluster, 10))


def serving_nodes(bootstrap: str) -> list[int]:
    return [each.node_id for each in members_of(bootstrap).brokers if not each.is_fenced]


def test_nodes_that_join_at_the_same_moment_get_ids_of_their_own(tmp_path: Path) -> None:
    with Broker(mode="process", data=tmp_path / "first") as first:
        address = first.bootstrap_servers
        joining = [Joining(tmp_path, name, address) for name in ("b", "c", "d")]
        try:
            for node in joining:
                node.await_ready()
            assert serving_nodes(address) == [1, 2, 3, 4]
            deadline = time.monotonic() + 60
            while len(members_of(address).quorum.voter_ids) < 3:
                assert time.monotonic() < deadline
                time.sleep(0.1)
            quorum = members_of(address).quorum
            assert len(quorum.voter_ids) == 3
            assert sorted(quorum.node_ids) == [1, 2, 3, 4]
        finally:
            for node in joining:
                node.process.kill()


def test_a_node_that_joined_comes_back_after_a_kill_without_being_told(tmp_path: Path) -> None:
    with Broker(mode="process", data=tmp_path / "first") as first:
        node = Joining(tmp_path, "b", first.bootstrap_servers)
        try:
            node.await_ready()
            node.process.kill()
            node.process = NodeProcess(node.settings, node.output)
            node.await_ready()
            assert serving_nodes(first.bootstrap_servers) == [1, 2]
            node.process.terminate()
            assert node.process.wait(60) == 0
        finally:
            node.process.kill()


def test_an_id_that_was_refused_is_not_given_again(cluster: Broker, tmp_path: Path) -> None:
    settings = settings_of(cluster, log_dirs=f"{tmp_path}/a")
    config, _ = configure(settings, join=cluster.bootstrap_servers, refused_ids={2, 3})
    assert config.node_id == 4


def test_a_broker_without_the_controllers_role_does_not_ask_to_vote(
    cluster: Broker, tmp_path: Path
) -> None:
    settings = settings_of(cluster, log_dirs=f"{tmp_path}/a", process_roles="broker")
    config, _ = configure(settings, join=cluster.bootstrap_servers)
    assert not config.controller_quorum_auto_join_enable


def test_a_node_that_joined_finds_back_by_its_directory(cluster: Broker, tmp_path: Path) -> None:
    directory = tmp_path / "a"
    settings = settings_of(cluster, log_dirs=str(directory))
    first, _ = configure(settings, join=cluster.bootstrap_servers)
    assert first.cluster_id is not None
    identify(directory, first.cluster_id, first.node_id)
    again, has_new_id = configure(settings)
    assert not has_new_id
    assert again.node_id == first.node_id
    assert again.controller_quorum_bootstrap_servers == first.controller_quorum_bootstrap_servers
    assert again.controller_quorum_auto_join_enable


def test_a_start_that_ended_before_the_node_had_an_id_asks_again(
    cluster: Broker, tmp_path: Path
) -> None:
    remember(str(tmp_path), {"controller.quorum.bootstrap.servers": cluster.bootstrap_servers})
    config, has_new_id = configure(settings_of(cluster, log_dirs=str(tmp_path)))
    assert has_new_id
    assert (config.node_id, config.cluster_id) == (2, cluster.node.cluster_id)


def test_a_node_that_has_been_there_starts_while_nobody_answers(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    identify(tmp_path, "a-cluster", 3)
    away = f"127.0.0.1:{free_port()}"
    config, has_new_id = configure({"log.dirs": str(tmp_path)}, join=away)
    assert (config.node_id, has_new_id) == (3, False)
    assert config.controller_quorum_auto_join_enable
    assert "this one starts with what it knows" in capsys.readouterr().err


def test_a_directory_of_another_cluster_is_refused(cluster: Broker, tmp_path: Path) -> None:
    identify(tmp_path, "another-cluster", 1)
    done = run_command("up", "--join", cluster.bootstrap_servers, "--data", str(tmp_path))
    assert done.returncode == 1
    assert f"{tmp_path} belongs to node 1 of cluster another-cluster" in done.stderr
    assert "join with an empty --data directory" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_node_id_in_use_is_refused_with_one_that_is_free(cluster: Broker, tmp_path: Path) -> None:
    done = run_command(
        *("up", "--join", cluster.bootstrap_servers, "--node-id", "1"),
        *("--data", str(tmp_path / "new")),
    )
    assert done.returncode == 1
    assert f"node id 1 is in use by a node of the cluster at {cluster.bootstrap_servers}" in (
        done.stderr
    )
    assert "--node-id 2 is free" in done.stderr
    assert not (tmp_path / "new").exists()


def test_a_version_that_does_not_fit_is_refused(tmp_path: Path) -> None:
    # As if the cluster were of a later time: it has a level that this node does not support.
    settings = {"unstable.feature.versions.enable": "true", "initial.metadata.version": "4.4-IV0"}
    with Broker(settings=settings) as newer:
        done = run_command("up", "--join", newer.bootstrap_servers, "--data", str(tmp_path / "new"))
    assert done.returncode == 1
    assert "has metadata.version at level 31" in done.stderr
    assert "this Tidelog supports 7-30" in done.stderr
    assert "install the Tidelog that the other nodes run" in done.stderr


def test_a_cluster_with_a_listener_for_controllers_says_which(tmp_path: Path) -> None:
    port, controller_port = free_port(), free_port()
    settings = {
        "listeners": f"PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller_port}",
        "controller.listener.names": "CONTROLLER",
    }
    with Broker(port=port, settings=settings) as other:
        with pytest.raises(JoinError, match="over the listener CONTROLLER"):
            configure({"log.dirs": f"{tmp_path}/a"}, join=other.bootstrap_servers)
        config, _ = configure(
            {
                "log.dirs": f"{tmp_path}/a",
                "listeners": "PLAINTEXT://127.0.0.1:0,CONTROLLER://127.0.0.1:0",
                "controller.listener.names": "CONTROLLER",
            },
            join=other.bootstrap_servers,
        )
    assert config.controller_quorum_bootstrap_servers[-1] == ("127.0.0.1", controller_port)


def test_an_address_where_nobody_answers_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tidelog.cli.join._WAIT_S_MAX", 0.3)
    lines: list[str] = []
    away = f"127.0.0.1:{free_port()}"
    with pytest.raises(JoinError, match="Start the cluster's first node with `tidelog up`"):
        find_place(away, NodeConfig(), identity=None, wanted_id=None, tell=lines.append)
    assert lines == [f"no node answers at {away} yet; waiting up to 0.3 s"]


def test_an_address_that_is_none_is_told(tmp_path: Path) -> None:
    done = run_command("up", "--join", "nowhere", "--data", str(tmp_path / "new"))
    assert done.returncode == 1
    assert "'nowhere' is not HOST:PORT" in done.stderr


@pytest.mark.parametrize(
    ("taken", "free"), [((), 1), ((1,), 2), ((1, 2, 4), 3), ((0, 2), 1), ((7, 8), 1)]
)
def test_the_smallest_free_id_is_given(taken: tuple[int, ...], free: int) -> None:
    assert free_node_id(taken) == free


def test_the_node_id_of_a_directory_needs_no_setting(tmp_path: Path) -> None:
    identify(tmp_path, "a-cluster", 7)
    assert configure({"log.dirs": str(tmp_path)})[0].node_id == 7
    assert configure({"log.dirs": str(tmp_path), "node.id": "8"})[0].node_id == 8
