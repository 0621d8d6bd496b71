"""A Spark standalone cluster on the loopback: one master, two workers, each a process of ours."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import TracebackType

import psutil
import pyspark

from tidelog.spark.runtime.cache_folder import cache_folder
from tidelog.spark.runtime.java import java_home
from tidelog.testing.broker import free_port

_HOST = "127.0.0.1"
_READY_TIMEOUT_S = 60.0


class StandaloneCluster:
    """Started by `with`; `url` is what a session takes as its master."""

    def __init__(self, folder: Path, *, workers: int = 2, memory: str = "1g") -> None:
        self._folder = folder
        self._workers = workers
        self._memory = memory
        self._port = free_port()
        self._processes: list[subprocess.Popen[bytes]] = []
        self.url = f"spark://{_HOST}:{self._port}"

    def __enter__(self) -> "StandaloneCluster":
        try:
            self._start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()

    def stop(self) -> None:
        for process in reversed(self._processes):
            for each in self._tree(process):
                try:
                    each.send_signal(signal.SIGKILL)
                except psutil.NoSuchProcess:
                    continue
            process.wait(30)
        self._processes.clear()

    def executors(self) -> list[psutil.Process]:
        """The JVMs of the executors that the workers have started."""
        return [
            each
            for process in self._processes[1:]
            for each in self._tree(process)
            if "CoarseGrainedExecutorBackend" in " ".join(_command(each))
        ]

    def _start(self) -> None:
        master = ["org.apache.spark.deploy.master.Master", "--host", _HOST]
        self._spawn("master", [*master, "--port", str(self._port), "--webui-port", "0"])
        self._wait_for("master", "I have been elected leader")
        for index in range(self._workers):
            worker = ["org.apache.spark.deploy.worker.Worker", "--host", _HOST, "--cores", "1"]
            place = self._folder / f"work-{index}"
            options = ["--memory", self._memory, "--webui-port", "0", "--work-dir", str(place)]
            self._spawn(f"worker-{index}", [*worker, *options, self.url])
        for index in range(self._workers):
            self._wait_for(f"worker-{index}", "Successfully registered with master")

    def _spawn(self, name: str, command: list[str]) -> None:
        home = Path(pyspark.__file__).parent
        environment = {
            **os.environ,
            "SPARK_HOME": str(home),
            "SPARK_LOCAL_IP": _HOST,
            "SPARK_DAEMON_MEMORY": "256m",
            "PYSPARK_PYTHON": sys.executable,
            "JAVA_HOME": str(java_home(os.environ, cache_folder(os.environ))),
        }
        with (self._folder / f"{name}.log").open("ab") as log:
            process = subprocess.Popen(
                [str(home / "bin" / "spark-class"), *command],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=environment,
            )
        self._processes.append(process)

    def _wait_for(self, name: str, line: str) -> None:
        log = self._folder / f"{name}.log"
        deadline = time.monotonic() + _READY_TIMEOUT_S
        while time.monotonic() < deadline:
            if line in log.read_text(errors="replace"):
                return
            time.sleep(0.2)
        raise TimeoutError(f"{name} did not start: {log.read_text(errors='replace')[-2000:]}")

    @staticmethod
    def _tree(process: subprocess.Popen[bytes]) -> list[psutil.Process]:
        try:
            root = psutil.Process(process.pid)
            return [*root.children(recursive=True), root]
        except psutil.NoSuchProcess:
            return []


def _command(process: psutil.Process) -> list[str]:
    try:
        return process.cmdline()
    except psutil.NoSuchProcess:
        return []
