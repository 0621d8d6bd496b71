"""`tidelog.spark.Pipeline`: a pipeline file from Python."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, TypedDict, Unpack

from tidelog.spark.errors import SparkError
from tidelog.spark.pipeline.checks.broker_probe import probe_brokers
from tidelog.spark.pipeline.file.model import PipelineSpec
from tidelog.spark.pipeline.file.problems import Problem
from tidelog.spark.pipeline.pipeline_file import PipelineFile, read_pipeline_file
from tidelog.spark.pipeline.plan import Plan, make_plan
from tidelog.spark.pipeline.run.checkpoint_lock import checkpoint_claimed
from tidelog.spark.pipeline.run.metrics import MetricsServer, render
from tidelog.spark.pipeline.run.runner import OnEvent, OnStatus, Runner, StopRequests
from tidelog.spark.pipeline.run.session import pipeline_session
from tidelog.spark.pipeline.run.state_dir import StateDir, state_root
from tidelog.spark.runtime.session import place_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tidelog.spark.pipeline.run.status import PipelineStatus


class PipelineError(SparkError):
    """A pipeline file has errors, or the pipeline failed; the text says which or why."""


class RunSettings(TypedDict, total=False):
    """How a pipeline is run, beside what its file says."""

    master: str | None
    conf: Mapping[str, str]
    state_dir: str | os.PathLike[str] | None  # where `tidelog pipeline status` looks
    metrics_port: int | None  # for Prometheus, on the loopback; 0 takes a free one
    on_session: Callable[[SparkSession], None]  # called when Spark has started
    on_event: OnEvent
    on_status: OnStatus


class Pipeline:
    """A pipeline file that has no errors.

    pipeline = Pipeline.load("shop.toml")
    print(pipeline.plan().as_dot())
    pipeline.run()                      # until it ends or fails

    with pipeline.start(spark) as running:
        ...
        running.drain()
    """

    def __init__(self, file: PipelineFile) -> None:
        if file.spec is None:
            raise PipelineError("\n".join(str(each) for each in file.errors))
        self.spec: PipelineSpec = file.spec
        self.warnings: tuple[Problem, ...] = file.problems
        self._file = file

    @classmethod
    def load(
        cls, file: str | os.PathLike[str], variables: Mapping[str, str] | None = None
    ) -> Pipeline:
        """Read and check a file; PipelineError lists what is wrong with it, line by line."""
        return cls(read_pipeline_file(file, variables))

    @property
    def name(self) -> str:
        return self.spec.name

    def plan(self) -> Plan:
        """The graph of sources, steps and sinks."""
        return make_plan(self.spec)

    def run(
        self, spark: SparkSession | None = None, **settings: Unpack[RunSettings]
    ) -> PipelineStatus:
        """Run until all queries end (or for ever); PipelineError if it fails.

        `spark` is a session to run in; without it one is made from the file's settings, `master`
        and `conf`.
        """
        running = RunningPipeline(self, spark, **settings)
        running.run()
        return running.result()

    def start(
        self, spark: SparkSession | None = None, **settings: Unpack[RunSettings]
    ) -> RunningPipeline:
        """As `run`, in a thread."""
        running = RunningPipeline(self, spark, **settings)
        running.start()
        return running


class RunningPipeline:
    """One run of a pipeline. As a context manager it drains at the end of the block."""

    def __init__(
        self,
        pipeline: Pipeline,
        spark: SparkSession | None = None,
        **settings: Unpack[RunSettings],
    ) -> None:
        self._spec = pipeline.spec
        self._given = spark
        self._settings = settings
        root = settings.get("state_dir") or self._spec.state_dir or state_root(os.environ)
        self._state_dir = StateDir(Path(root) / self._spec.name)
        self._stop_requests = StopRequests()
        self._thread: threading.Thread | None = None
        self._error: BaseException | None = None
        self._last: PipelineStatus | None = None

    def __enter__(self) -> RunningPipeline:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if kind is None:
            self.drain()
            return
        self.request_stop()
        self.request_stop()
        self.wait()

    @property
    def status(self) -> PipelineStatus | None:
        """The newest status; None while the session starts."""
        return self._last

    def request_stop(self) -> None:
        """Let running micro-batches finish, then stop; asked again, stop at once."""
        self._stop_requests.add()

    @property
    def stops_requested(self) -> int:
        return self._stop_requests.count

    def drain(self, timeout_s: float | None = None) -> PipelineStatus:
        """Stop after the running micro-batches; PipelineError if the pipeline failed."""
        self.request_stop()
        if not self.wait(timeout_s):
            raise PipelineError(f"{self._spec.name} has not stopped after {timeout_s:g} s")
        return self.result()

    def wait(self, timeout_s: float | None = None) -> bool:
        """Whether it has ended within the time."""
        if self._thread is None:
            return True
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def result(self) -> PipelineStatus:
        """How it ended; PipelineError if it failed."""
        if self._error is not None:
            raise self._error
        assert self._last is not None
        if self._last.phase == "failed":
            raise PipelineError(f"{self._spec.name} failed: {self._last.reason}")
        return self._last

    def start(self) -> None:
        self._thread = threading.Thread(
            target=self._run_in_thread, name=f"pipeline-{self._spec.name}", daemon=True
        )
        self._thread.start()

    def _run_in_thread(self) -> None:
        try:
            self.run()
        except BaseException as error:  # noqa: BLE001  it is raised again by result()
            self._error = error

    def run(self) -> None:
        """Run in this thread to the end."""
        settings = self._settings
        with ExitStack() as stack:
            stack.enter_context(self._state_dir.claimed())
            if not self._is_remote():
                stack.enter_context(checkpoint_claimed(self._spec.checkpoint))
            url = None
            port = settings.get("metrics_port")
            if port is not None:
                server = MetricsServer(port, lambda: render(self._last) if self._last else "")
                stack.callback(server.close)
                url = server.url
            on_event = settings.get("on_event") or (lambda event: None)
            for away in probe_brokers(self._spec):
                on_event(away)
            spark = stack.enter_context(
                pipeline_session(
                    self._spec,
                    self._given,
                    master=settings.get("master"),
                    conf=settings.get("conf"),
                )
            )
            on_started = settings.get("on_session")
            if on_started is not None:
                on_started(spark)
            runner = Runner(
                self._spec,
                spark,
                stop_requests=self._stop_requests,
                state_dir=self._state_dir,
                metrics_url=url,
                on_event=on_event,
                on_status=self._keep,
            )
            self._last = runner.run()

    def _is_remote(self) -> bool:
        """Whether Spark, and with it a folder of the checkpoint, is on another machine."""
        if self._given is not None:
            return not hasattr(self._given, "_jvm")
        master = self._settings.get("master") or self._spec.spark.master
        conf = {**self._spec.spark.conf, **(self._settings.get("conf") or {})}
        # A file of defaults names no server of Spark Connect.
        return place_of(master, conf, os.environ, {}).is_remote

    def _keep(self, status: PipelineStatus) -> None:
        self._last = status
        on_status = self._settings.get("on_status")
        if on_status is not None:
            on_status(status)
