"""`tidelog up`: settings from file, environment and flags; a clean end."""

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

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
