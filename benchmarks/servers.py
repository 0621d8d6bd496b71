"""The brokers under test, as processes: Tidelog, and Apache Kafka from Maven Central."""

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Protocol

from benchmarks.process_usage import Usage, usage_of
from tidelog.testing.broker import free_port

_POM = Path(__file__).parent / "apache_kafka" / "pom.xml"
_CACHE = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "tidelog-benchmarks"
_START_TIMEOUT_S = 90.0
SOURCES = Path(__file__).resolve().parents[1] / "src"


class ServerProcess:
    """A server process whose output goes to a file.

    `kind` says whose it is, because their topic settings differ; `name` is its column in results.
    """

    kind: str
    name: str

    def __init__(self, data: Path) -> None:
        self.data = data
        self.port = free_port()
        self.started_at = 0.0
        self._process: subprocess.Popen[bytes] | None = None

    def _spawn(self, command: list[str], environment: dict[str, str] | None = None) -> None:
        self.data.mkdir(parents=True, exist_ok=True)
        with (self.data / "output.txt").open("ab") as output:
            self.started_at = time.perf_counter()
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env={**os.environ, **(environment or {})},
            )

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def log_folders(self) -> list[Path]:
        """Where the folders of its partitions are."""
        return [self.data / "log"]

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def usage(self) -> Usage:
        return usage_of(self.pid)

    def usages(self) -> list[Usage]:
        """Of each of its processes."""
        return [self.usage()]

    def begin_stop(self) -> None:
        """Ask it to stop, and do not wait."""
        if self._process is not None:
            self._process.send_signal(signal.SIGTERM)

    def stop(self) -> None:
        if self._process is None:
            return
        self.begin_stop()
        try:
            self._process.wait(30)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process = None

    def kill(self) -> None:
        """kill -9."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def output_tail(self) -> str:
        return (self.data / "output.txt").read_text(errors="replace")[-2000:]


class TidelogServer(ServerProcess):
    """`tidelog up` on a folder of its own, from this source tree or from another.

    `join` has the addresses of a cluster that it belongs to.
    """

    kind = "tidelog"

    def __init__(
        self,
        data: Path,
        *,
        name: str = "Tidelog",
        sources: Path = SOURCES,
        settings: Mapping[str, str] | None = None,
        join: Sequence[str] = (),
    ) -> None:
        super().__init__(data)
        self.name = name
        self._join = [f"--join={','.join(join)}"] if join else []
        self._settings = {"durability": "page-cache", **(settings or {})}
        self._environment = {
            "PYTHONPATH": str(sources),
            # An installed package has its byte code; a benchmark must not compile at each start.
            "PYTHONDONTWRITEBYTECODE": "",
        }
        _check_sources(sources, self._environment)

    def start(self) -> None:
        self._spawn(
            [
                sys.executable,
                "-m",
                "tidelog",
                "up",
                "--data",
                str(self.data / "log"),
                "--listen",
                f"127.0.0.1:{self.port}",
                *self._join,
                *(f"--set={name}={value}" for name, value in self._settings.items()),
            ],
            self._environment,
        )


def _check_sources(sources: Path, environment: dict[str, str]) -> None:
    """An installed package must not stand in for the source tree that is to be measured."""
    found = subprocess.run(
        [sys.executable, "-c", "import tidelog; print(tidelog.__file__)"],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, **environment},
    ).stdout.strip()
    if Path(found).resolve() != (sources / "tidelog" / "__init__.py").resolve():
        raise RuntimeError(f"Python imports {found}, not the package in {sources}")


class KafkaServer(ServerProcess):
    """Apache Kafka with its default KRaft configuration of a broker that is a controller, too.

    `voters` has the ports of the controllers of its cluster by node id; without it the node is a
    cluster of one.
    """

    kind = "kafka"
    name = "Kafka"

    def __init__(
        self,
        data: Path,
        libraries: Path,
        *,
        settings: Mapping[str, str] | None = None,
        node_id: int = 1,
        voters: Mapping[int, int] | None = None,
    ) -> None:
        super().__init__(data)
        self._node_id = node_id
        self._voters = voters or {node_id: free_port()}
        self._settings = settings or {}
        self._classpath = str(libraries / "*")
        self._formatted = False

    def start(self) -> None:
        if not self._formatted:
            self._format()
        self._spawn(
            [
                "java",
                # The heap and collector of Kafka's own start script.
                "-Xmx1G",
                "-Xms1G",
                "-server",
                "-XX:+UseG1GC",
                "-XX:MaxGCPauseMillis=20",
                "-XX:InitiatingHeapOccupancyPercent=35",
                "-XX:+ExplicitGCInvokesConcurrent",
                "-Djava.awt.headless=true",
                "-cp",
                self._classpath,
                "kafka.Kafka",
                str(self.data / "server.properties"),
            ]
        )

    def _format(self) -> None:
        controller_port = self._voters[self._node_id]
        voters = ",".join(f"{node}@127.0.0.1:{port}" for node, port in self._voters.items())
        replicas = len(self._voters)
        self.data.mkdir(parents=True, exist_ok=True)
        properties = self.data / "server.properties"
        properties.write_text(
            "\n".join(
                (
                    "process.roles=broker,controller",
                    f"node.id={self._node_id}",
                    f"controller.quorum.voters={voters}",
                    f"listeners=PLAINTEXT://127.0.0.1:{self.port},"
                    f"CONTROLLER://127.0.0.1:{controller_port}",
                    f"advertised.listeners=PLAINTEXT://127.0.0.1:{self.port}",
                    "controller.listener.names=CONTROLLER",
                    "listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
                    "inter.broker.listener.name=PLAINTEXT",
                    f"log.dirs={self.data / 'log'}",
                    "num.network.threads=3",
                    "num.io.threads=8",
                    f"offsets.topic.replication.factor={replicas}",
                    f"transaction.state.log.replication.factor={replicas}",
                    f"transaction.state.log.min.isr={max(replicas - 1, 1)}",
                    *(f"{name}={value}" for name, value in self._settings.items()),
                )
            )
        )
        made = subprocess.run(
            [
                "java",
                "-cp",
                self._classpath,
                "kafka.tools.StorageTool",
                "format",
                "-t",
                "MkU3OEVBNTcwNTJENDM2Qk",
                "-c",
                str(properties),
            ],
            capture_output=True,
            text=True,
            check=False,
        )
        if made.returncode:
            raise RuntimeError(f"Kafka cannot format its storage: {made.stdout}{made.stderr}")
        self._formatted = True


class Measured(Protocol):
    """What is measured: one node, or a cluster of several."""

    @property
    def kind(self) -> str: ...

    @property
    def name(self) -> str: ...

    @property
    def data(self) -> Path: ...

    @property
    def bootstrap(self) -> str: ...

    @property
    def log_folders(self) -> list[Path]: ...

    @property
    def started_at(self) -> float: ...

    def start(self) -> None: ...

    def stop(self) -> None: ...

    def usages(self) -> list[Usage]: ...


Broker = TidelogServer | KafkaServer


def kafka_libraries() -> Path | None:
    """The folder with Kafka's jars, fetched once; None where Java or Maven are missing."""
    if shutil.which("java") is None:
        return None
    folder = _CACHE / f"kafka-{kafka_version()}"
    if (folder / ".complete").exists():
        return folder
    if shutil.which("mvn") is None:
        return None
    fetched = subprocess.run(
        [
            "mvn",
            "-q",
            "-B",
            "-f",
            str(_POM),
            "dependency:copy-dependencies",
            f"-DoutputDirectory={folder}",
        ],
        stdin=subprocess.DEVNULL,
        check=False,
    )
    if fetched.returncode:
        return None
    (folder / ".complete").touch()
    return folder


def kafka_version() -> str:
    text = _POM.read_text()
    return text.split("kafka_2.13</artifactId>")[1].split("<version>")[1].split("<")[0]


def wait_until_serving(server: ServerProcess) -> None:
    """Return when the port accepts; raise with the server's last words when it never does."""
    deadline = time.monotonic() + _START_TIMEOUT_S
    while time.monotonic() < deadline:
        try:
            socket.create_connection(("127.0.0.1", server.port), 1).close()
            return
        except OSError:
            if not server.is_running():
                break
            time.sleep(0.005)
    raise RuntimeError(f"{server.name} does not serve: {server.output_tail()}")
