"""Settings of brokers that are changed while the node runs: the change has an effect at once."""

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.server.batches import produce
from tests.server.handlers.settings.test_alter_configs import BROKER, DELETE, SET, change
from tests.server.handlers.settings.test_describe_configs import by_name, describe
from tests.server.running_node import RunningNode
from tidelog.protocol.apis.api_versions import ApiVersionsRequest
from tidelog.protocol.apis.get_telemetry_subscriptions import GetTelemetrySubscriptionsRequest
from tidelog.protocol.topic_partition import TopicPartition
from tidelog.protocol.uuids import ZERO_UUID
from tidelog.server.structured_logs import Level
from tidelog.testing.wire import ConnectionEnded, WireClient

StartNode = Callable[..., RunningNode]
WAIT_S = 30


@pytest.fixture
def start_node(tmp_path: Path) -> Iterator[StartNode]:
    started: list[RunningNode] = []

    def start(**settings: str) -> RunningNode:
        named = {name.replace("_", "."): value for name, value in settings.items()}
        started.append(RunningNode(tmp_path / "data", named))
        return started[-1]

    yield start
    for node in started:
        node.stop()


def is_served(node: RunningNode) -> bool:
    """Whether one more connection gets an answer."""
    try:
        with WireClient(node.host, node.port, timeout_s=WAIT_S) as client:
            return bool(client.call(ApiVersionsRequest(), 0).api_keys)
    except (ConnectionEnded, ConnectionError):
        return False


@pytest.mark.parametrize(
    "name",
    ["max.connections", "max.connections.per.ip", "listener.name.plaintext.max.connections"],
)
def test_limits_on_connections_change_at_once(start_node: StartNode, name: str) -> None:
    node = start_node()
    admin = node.client()
    assert is_served(node)
    assert change(admin, BROKER, "1", (name, SET, "1")) == 0
    assert not is_served(node)
    assert change(admin, BROKER, "1", (name, DELETE, None)) == 0
    assert is_served(node)


def test_the_override_of_an_address_counts_at_once(start_node: StartNode) -> None:
    node = start_node()
    admin = node.client()
    overrides = ("max.connections.per.ip.overrides", SET, "127.0.0.1:1")
    assert change(admin, BROKER, "", overrides) == 0
    assert not is_served(node)


def test_stored_settings_that_would_keep_everybody_out_do_not_keep_the_node_from_starting(
    start_node: StartNode,
) -> None:
    node = start_node(max_connections_per_ip_overrides="127.0.0.1:100")
    limit = ("max.connections.per.ip", SET, "0")
    assert change(node.client(), BROKER, "1", limit, ("log.cleaner.backoff.ms", SET, "77")) == 0
    node.stop()
    node = start_node()  # the file has lost the overrides that this relied on
    assert is_served(node)
    assert node.node.config.log_cleaner_backoff_ms == 77


def test_a_listener_has_a_limit_of_its_own(tmp_path: Path) -> None:
    listeners = "INSIDE://127.0.0.1:0,OUTSIDE://127.0.0.1:0"
    limit = {"listener.name.outside.max.connections": "1"}
    node = RunningNode(tmp_path / "data", {"listeners": listeners, **limit})
    try:
        (inside, outside) = node.node.addresses
        with WireClient(*outside) as first:
            assert first.call(ApiVersionsRequest(), 0).api_keys
            with pytest.raises((ConnectionEnded, ConnectionError)), WireClient(*outside) as second:
                second.call(ApiVersionsRequest(), 0)
            with WireClient(*inside) as other:
                assert other.call(ApiVersionsRequest(), 0).api_keys
    finally:
        node.stop()


def test_the_cleaner_looks_as_soon_as_its_pause_gets_shorter(start_node: StartNode) -> None:
    node = start_node(log_cleaner_backoff_ms="3600000")
    node.create_topic("table", cleanup_policy="compact")
    admin = node.client()
    assert node.node.cleaning.cleaner is None
    assert change(admin, BROKER, "1", ("log.cleaner.backoff.ms", SET, "20")) == 0
    deadline = time.monotonic() + WAIT_S
    while node.node.cleaning.cleaner is None:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    operations = [
        ("log.cleaner.dedupe.buffer.size", SET, "2000000"),
        ("log.cleaner.io.max.bytes.per.second", SET, "12345.0"),
    ]
    assert change(admin, BROKER, "1", *operations) == 0
    cleaner = node.node.cleaning.cleaner
    while (cleaner.dedupe_buffer_bytes, cleaner.bytes_per_second_max) != (2000000, 12345.0):
        assert time.monotonic() < deadline
        time.sleep(0.01)


@pytest.mark.parametrize(
    "name", ["max.connection.creation.rate", "listener.name.plaintext.max.connection.creation.rate"]
)
def test_connections_above_the_rate_wait(start_node: StartNode, name: str) -> None:
    node = start_node(quota_window_num="2")
    admin = node.client()
    assert change(admin, BROKER, "1", (name, SET, "2")) == 0
    # The rate is over one second: the first two are within it, what the third adds is paid for by
    # the fourth.
    started_s = time.monotonic()
    for _ in range(4):
        assert is_served(node)
    assert time.monotonic() - started_s > 0.4
    assert change(admin, BROKER, "1", (name, DELETE, None)) == 0
    assert is_served(node)


def test_syncs_use_the_new_number_of_threads(start_node: StartNode) -> None:
    node = start_node()
    (serving,) = node.node.store._serving
    name = "num.recovery.threads.per.data.dir"
    assert change(node.client(), BROKER, "1", (name, SET, "3")) == 0
    assert (serving._sync_threads, serving._checkpointer.sync_threads) == (3, 3)


def test_logs_forget_producers_by_the_new_time(start_node: StartNode) -> None:
    node = start_node()
    node.create_topic("orders")
    admin = node.client()
    log = node.node.store.logs[TopicPartition("orders", 0)]
    assert log.config.producer_id_expiration_ms == 86_400_000
    assert change(admin, BROKER, "", ("producer.id.expiration.ms", SET, "5000")) == 0
    assert log.config.producer_id_expiration_ms == 5000


def test_the_check_of_transactions_is_switched_at_once(start_node: StartNode) -> None:
    node = start_node()
    name = "transaction.partition.verification.enable"
    assert change(node.client(), BROKER, "", (name, SET, "false")) == 0
    assert node.node.config.transaction_partition_verification_enable is False


def test_a_change_without_effect_is_taken_and_logged_once(
    start_node: StartNode, capfd: pytest.CaptureFixture[str]
) -> None:
    node = start_node()
    node.node.log.level = Level.WARNING
    admin = node.client()
    name = "background.threads"
    assert change(admin, BROKER, "1", (name, SET, "4")) == 0
    assert change(admin, BROKER, "1", (name, SET, "5"), ("my.own.name", SET, "x")) == 0
    assert by_name(describe(admin, BROKER, "1"))[name].value == "5"
    lines = [line for line in capfd.readouterr().err.splitlines() if "without_effect" in line]
    assert [line.partition("settings=")[2] for line in lines] == [name, "my.own.name"]


def test_an_unknown_name_is_kept_and_told_without_its_value(start_node: StartNode) -> None:
    node = start_node()
    admin = node.client()
    assert change(admin, BROKER, "1", ("my.own.secret", SET, "x")) == 0
    entry = by_name(describe(admin, BROKER, "1"))["my.own.secret"]
    assert (entry.value, entry.config_type, entry.config_source) == (None, 0, 2)
    assert entry.is_sensitive
    assert entry.read_only
    assert [(each.value, each.source) for each in entry.synonyms] == [(None, 2)]
    assert change(admin, BROKER, "", ("my.own.default", SET, "x")) == 0
    assert by_name(describe(admin, BROKER, ""))["my.own.default"].value is None


def test_min_insync_replicas_is_kept_for_the_cluster_from_the_first_start_on(
    tmp_path: Path,
) -> None:
    def of_cluster(node: RunningNode) -> str | None:
        return by_name(describe(node.client(), BROKER, ""))["min.insync.replicas"].value

    first = RunningNode(tmp_path / "data", {"min.insync.replicas": "2"})
    assert of_cluster(first) == "2"
    first.stop()
    second = RunningNode(tmp_path / "data", {"min.insync.replicas": "1"})
    assert of_cluster(second) == "2"
    second.stop()


def test_a_default_is_not_told_as_set(tmp_path: Path) -> None:
    node = RunningNode(tmp_path / "data")
    try:
        configs = by_name(describe(node.client(), BROKER, "1"))
    finally:
        node.stop()
    static = {name for name, each in configs.items() if each.config_source == 4}
    made = set(node.node._static_config.explicit)
    assert static == made | {"broker.id", "advertised.listeners", "local.reads.socket"}


def test_clients_are_told_how_much_they_may_push(start_node: StartNode) -> None:
    node = start_node(telemetry_max_bytes="1000")
    request = GetTelemetrySubscriptionsRequest(client_instance_id=ZERO_UUID)
    assert node.client().call(request, 0).telemetry_max_bytes == 1000


def test_metadata_gets_a_snapshot_after_so_many_bytes(tmp_path: Path) -> None:
    node = RunningNode(
        tmp_path / "data", {"metadata.log.max.record.bytes.between.snapshots": "100"}
    )
    try:
        node.create_topic("orders", partitions=5)
        metadata = tmp_path / "data" / "__cluster_metadata-0"
        node.wait_until(lambda _: bool(list(metadata.glob("*.checkpoint"))))
    finally:
        node.stop()


def test_logs_move_between_directories_as_fast_as_is_allowed_now(tmp_path: Path) -> None:
    limit = "replica.alter.log.dirs.io.max.bytes.per.second"
    directories = [tmp_path / "first", tmp_path / "second"]
    node = RunningNode(tmp_path, {"log.dirs": ",".join(map(str, directories))})
    try:
        node.create_topic("orders")
        with node.client() as client:
            for _ in range(30):
                produce(client, "orders", bytes(100_000))
            assert change(client, BROKER, "1", (limit, SET, "1")) == 0
            store = node.node.store
            place = TopicPartition("orders", 0)

            def move() -> None:
                here = store.logs[place].directory.parent
                store.move(place, next(each for each in directories if each != here))

            node.call(move)
            time.sleep(0.5)
            (under_way,) = node.call(lambda: list(store.moves.values()))
            assert 0 < under_way.offset_lag < 30
            assert change(client, BROKER, "1", (limit, DELETE, None)) == 0
        node.wait_until(lambda each: not each.store.moves)
        assert node.call(lambda: store.logs[place].directory.parent in directories)
    finally:
        node.stop()
