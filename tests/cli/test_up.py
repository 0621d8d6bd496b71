"""`tidelog up`: settings from file, environment and flags; a clean end."""

import os
import re
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tidelog.cli.up import NOT_SETTINGS
from tidelog.client import connect
from tidelog.protocol.apis.api_versions import ApiVersionsRequest
from tidelog.testing.broker import free_port
from tidelog.testing.wire import WireClient


def test_no_variable_that_other_parts_read_is_taken_for_a_setting() -> None:
    source = Path(__file__).parents[2] / "src"
    read = re.compile(r"""(?:environ|getenv|environment|envvar)[^\n]*["'](TIDELOG_[A-Z_]+)["']""")
    found = {name for file in source.rglob("*.py") for name in read.findall(file.read_text())}
    assert found == NOT_SETTINGS


def finalized_features(port: int) -> dict[str, int]:
    request = ApiVersionsRequest(client_software_name="test", client_software_version="1.0")
    with WireClient("127.0.0.1", port) as wire:
        answer = wire.call(request, 4)
    return {each.name: each.max_version_level for each in answer.finalized_features}


def test_up_takes_settings_from_everywhere_and_ends_cleanly(tmp_path: Path) -> None:
    port = free_port()
    config = tmp_path / "node.toml"
    config.write_text('"num.partitions" = 3\n[log]\n"retention.ms" = 5000\n')
    output = tmp_path / "output.txt"
    with output.open("wb") as out:
        process = subprocess.Popen(
            [
                *(sys.executable, "-m", "tidelog", "up", "--config", str(config)),
                *("--data", str(tmp_path / "data"), "--listen", f"127.0.0.1:{port}"),
                *("--set", "durability=page-cache"),
                *("--metadata-version", "4.0", "--feature", "group.version=0"),
                *("--feature", "transaction.version=1"),
            ],
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
            env={
                **os.environ,
                "TIDELOG_BROKER_RACK": "attic",
                "TIDELOG_STATE_DIR": str(tmp_path / "state"),
            },
        )
    try:
        deadline = time.monotonic() + 30
        while f"127.0.0.1:{port}" not in output.read_text():
            assert time.monotonic() < deadline, output.read_text()
            assert process.poll() is None, output.read_text()
            time.sleep(0.01)
        with connect(f"127.0.0.1:{port}") as client:
            assert finalized_features(port) == {
                "metadata.version": 25,
                "transaction.version": 1,
                "kraft.version": 1,
            }
            client.create_topic("defaults")
            layout = client.layout_of("defaults")
            assert layout.leader_racks == ("attic",) * 3
            client.publish("defaults", value=b"x")
            client.flush()
    finally:
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0
    assert "Tidelog is ready" in output.read_text()
    assert "node_stopped" in output.read_text()


def test_up_refuses_an_unknown_metadata_version_with_those_it_knows(tmp_path: Path) -> None:
    result = subprocess.run(
        [
            *(sys.executable, "-m", "tidelog", "up", "--data", str(tmp_path / "data")),
            *("--metadata-version", "5.0"),
        ],
        capture_output=True,
        text=True,
        timeout=30,
    )
    assert result.returncode != 0
    assert "Unknown metadata.version '5.0'" in result.stderr
    assert "4.2-IV1, 4.3-IV0" in result.stderr
    assert "Traceback" not in result.stderr
    assert not (tmp_path / "data").exists()


@pytest.mark.parametrize(
    "quorum",
    ["controller.quorum.voters=7@localhost:{}", "controller.quorum.bootstrap.servers=localhost:{}"],
)
def test_a_server_properties_of_kafka_runs_and_one_line_tells_what_has_no_effect(
    tmp_path: Path, quorum: str
) -> None:
    port, controller_port = free_port(), free_port()
    config = tmp_path / "server.properties"
    config.write_text(
        "process.roles=broker,controller\n"
        "node.id=7\n"
        f"{quorum.format(controller_port)}\n"
        f"listeners=PLAINTEXT://:{port},CONTROLLER://:{controller_port}\n"
        f"advertised.listeners=PLAINTEXT://localhost:{port}\n"
        "controller.listener.names=CONTROLLER\n"
        "listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT\n"
        "num.io.threads=8\n"
        "queued.max.requests=500\n"
        "metric.reporters=com.example.Reporter\n"
        "num.partitions=3\n"
        f"log.dirs={tmp_path}/data\n"
    )
    output = tmp_path / "output.txt"
    with output.open("wb") as out:
        process = subprocess.Popen(
            [sys.executable, "-m", "tidelog", "up", "--config", str(config)],
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
        )
    try:
        deadline = time.monotonic() + 30
        while "Ctrl-C ends it" not in output.read_text():
            assert time.monotonic() < deadline, output.read_text()
            assert process.poll() is None, output.read_text()
            time.sleep(0.01)
        with connect(f"localhost:{port}") as client:
            client.create_topic("taken-over")
            assert len(client.layout_of("taken-over").leader_racks) == 3
        socket.create_connection(("127.0.0.1", controller_port), 5).close()
    finally:
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0
    text = output.read_text()
    (line,) = [line for line in text.splitlines() if "settings_without_effect" in line]
    assert line.endswith("settings=metric.reporters,num.io.threads,queued.max.requests")
    assert f"Kafka clients connect to localhost:{port}." in text


@pytest.mark.parametrize(
    ("setting", "reason"),
    [
        ("listeners=SASL_PLAINTEXT://127.0.0.1:0", "asks for SASL_PLAINTEXT"),
        ("authorizer.class.name=com.example.Authorizer", "there is no authorizer"),
        ("num.partitons=3", "Did you mean num.partitions?"),
        ("listeners=SSL://:9093 --listen 127.0.0.1:0", "--listen and --set listeners="),
    ],
)
def test_a_node_that_would_not_do_what_it_is_told_does_not_start(
    tmp_path: Path, setting: str, reason: str
) -> None:
    up = [sys.executable, "-m", "tidelog", "up", "--data", str(tmp_path / "data")]
    ended = subprocess.run(
        [*up, "-s", *setting.split(" ")],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert ended.returncode != 0
    assert reason.lower() in ended.stderr.lower()
    assert "Traceback" not in ended.stderr
    assert not (tmp_path / "data").exists()


@pytest.mark.parametrize("name", ["meta.properties", "__cluster_metadata-0"])
def test_a_node_that_cannot_read_its_data_says_so_and_leaves_it_alone(
    tmp_path: Path, name: str
) -> None:
    (tmp_path / name).symlink_to(name)  # stands for any error of the disk
    ended = subprocess.run(
        [sys.executable, "-m", "tidelog", "up", "--data", str(tmp_path), "--listen", "127.0.0.1:0"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert ended.returncode != 0
    assert ended.stderr.startswith("error: ")
    assert str(tmp_path / name) in ended.stderr
    assert "Traceback" not in ended.stderr
    assert (tmp_path / name).is_symlink()
