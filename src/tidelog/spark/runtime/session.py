"""A Spark session that just works: Java, Python, and the settings that Tidelog's queries like.

Three things more than halve the fixed cost of a micro-batch. Two are about checkpoints on a local
disk: Spark writes them without starting shell commands, and Hadoop's local file system leaves out
its `.crc` files. (`RawLocalFileSystem` in its place would do that too, but the RocksDB state store
takes only the one with checksums, and every stateful query would fail.) The third lets Spark talk
to Python over Unix sockets.
"""

import hashlib
import os
import re
import sys
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tidelog.spark.errors import SparkError
from tidelog.spark.runtime.append_by_default import append_by_default
from tidelog.spark.runtime.detached_java import start_detached_java
from tidelog.spark.source.group_listener import commit_group_offsets

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TASK_FAILURES_MAX = 4

_LOG_SETTINGS = """\
# Written by tidelog.spark.session(): errors only, to standard error.
rootLogger.level = error
rootLogger.appenderRef.stderr.ref = console
appender.console.type = Console
appender.console.name = console
appender.console.target = SYSTEM_ERR
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d{yy/MM/dd HH:mm:ss} %p %c{1}: %m%n%ex
# By the level of this one Spark sets that of all others when Python starts it.
logger.gateway.name = org.apache.spark.api.python.PythonGatewayServer
logger.gateway.level = error
"""

# What any session may be given while it runs, also over Spark Connect.
_RUNTIME_SETTINGS = {
    "spark.sql.python.filterPushdown.enabled": "true",
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
    # A batch then writes what changed in the state, not a snapshot of all of it.
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
}

_SETTINGS = {
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing"
        ".FileSystemBasedCheckpointFileManager"
    ),
    "spark.python.unix.domain.socket.enabled": "true",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}

# Of two threads that find no session, the second must find that of the first.
_making = threading.Lock()


def session(
    app_name: str = "tidelog",
    *,
    master: str | None = None,
    conf: Mapping[str, str] | None = None,
    is_java_detached: bool = False,
) -> "SparkSession":
    """The session of this process, or a new one.

    Without `master` it runs on this machine (`local[*]`, with task retries), or where
    `conf["spark.master"]`, `spark-submit`, `SPARK_REMOTE` or `spark-defaults.conf` say. `master`
    may be an address of Spark Connect (`sc://host:port`). What `conf` holds wins over every setting
    made here. A session that exists already, in whatever thread, is given back with what `conf`
    asks as far as a running one can take it. On a `SparkContext` without a session one is made, and
    what the context was given stays.

    `is_java_detached` keeps a SIGTERM from a Java process that is started here, for callers that
    handle it and then need Spark to end in good order.
    """
    try:
        import pyspark.sql  # noqa: F401
    except ImportError as error:
        raise SparkError('Tidelog on Spark needs PySpark: pip install "tidelog[spark]"') from error
    asked = dict(conf or {})
    with _making:
        found = existing_session()
        if found is None:
            made = _new_session(app_name, master, asked, is_java_detached=is_java_detached)
        else:
            # By its own kind's builder: the other would ask a Connect session for its address.
            made = _with_settings(type(found).builder, asked).getOrCreate()
    append_by_default(made)
    return made


def existing_session() -> "SparkSession | None":
    """The session of this process, whichever thread made it."""
    try:
        from pyspark.errors import PySparkRuntimeError
        from pyspark.sql import SparkSession
    except ImportError:
        return None
    try:
        found = SparkSession.active()
    except PySparkRuntimeError:
        return None
    # PySpark keeps a session whose context was stopped in its place.
    context = getattr(found, "_sc", None)
    return None if context is not None and context._jsc is None else found


def _new_session(
    app_name: str, master: str | None, asked: dict[str, str], *, is_java_detached: bool
) -> "SparkSession":
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    context = SparkContext._active_spark_context
    if context is not None:
        given = context.getConf()
        ours = {name: each for name, each in _RUNTIME_SETTINGS.items() if not given.contains(name)}
        made = _with_settings(SparkSession.builder, {**ours, **asked}).getOrCreate()
        commit_group_offsets(made)
        return made
    defaults = _defaults()
    place = place_of(master, asked, os.environ, defaults)
    if place.starts_java and SparkContext._gateway is None:
        _prepare_process(place)
    decided = _decided_by_user(defaults) - place.address.keys()
    ours = {name: each for name, each in settings_for(place).items() if name not in decided}
    settings = {"spark.app.name": app_name, **ours, **asked, **place.address}
    if is_java_detached and place.starts_java and SparkContext._gateway is None:
        start_detached_java(settings)
    made = _with_settings(SparkSession.builder, settings).getOrCreate()
    if not place.is_remote:
        commit_group_offsets(made)
    if place.is_local and not place.is_remote:
        _leave_out_checksum_files(made)
    return made


@dataclass(frozen=True, slots=True)
class Place:
    """Where Spark runs: its master, and whether this process reaches it over Spark Connect.

    `master` is None when `spark-submit` has decided it.
    """

    master: str | None
    is_remote: bool

    @property
    def is_local(self) -> bool:
        return self.master is not None and self.master.split("[")[0] == "local"

    @property
    def starts_java(self) -> bool:
        """Whether this process starts Spark's Java process."""
        return self.master is not None and not self.master.startswith("sc://")

    @property
    def address(self) -> dict[str, str]:
        if self.master is None:
            return {}
        return {"spark.remote" if self.is_remote else "spark.master": self.master}


def place_of(
    master: str | None,
    conf: Mapping[str, str],
    environment: Mapping[str, str],
    defaults: Mapping[str, str],
) -> Place:
    """Where the caller, the settings, the environment and the file of defaults say that Spark runs,
    in this order."""
    remote = conf.get("spark.remote") or environment.get("SPARK_REMOTE")
    wanted = master or conf.get("spark.remote") or conf.get("spark.master") or remote
    if remote is not None or (wanted is not None and wanted.startswith("sc://")):
        return Place(wanted, is_remote=True)
    if wanted is None and "PYSPARK_GATEWAY_PORT" not in environment:
        wanted = defaults.get("spark.master") or f"local[*,{TASK_FAILURES_MAX}]"
    return Place(wanted, is_remote=False)


def settings_for(place: Place) -> dict[str, str]:
    """The settings of a new session there, before the user's own."""
    if not place.starts_java and place.master is not None:
        return dict(_RUNTIME_SETTINGS)
    settings = {**_RUNTIME_SETTINGS, **_SETTINGS}
    if place.is_local:
        memory_bytes = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        settings |= {
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.driver.memory": f"{heap_mib(memory_bytes)}m",
            "spark.python.daemon.module": "tidelog.spark.runtime.python_daemon",
            "spark.sql.shuffle.partitions": str(max(2, len(os.sched_getaffinity(0)))),
        }
    return settings


def heap_mib(memory_bytes: int) -> int:
    """A quarter of the machine's memory, between 1 and 4 GiB."""
    return min(max(memory_bytes // 4 // 2**20, 1024), 4096)


def settings_in_defaults(text: str) -> dict[str, str]:
    """The settings in a `spark-defaults.conf`."""
    line = r"^[ \t]*(spark\.[^\s=:]+)[ \t]*[=:]?[ \t]*(.*?)[ \t\r]*$"
    return dict(re.findall(line, text, re.MULTILINE))


def _with_settings(
    builder: "SparkSession.Builder", settings: Mapping[str, str]
) -> "SparkSession.Builder":
    for name, value in settings.items():
        builder = builder.config(name, value)
    return builder


def _leave_out_checksum_files(spark: "SparkSession") -> None:
    """A checkpoint has half as many files then. Hadoop keeps one object for all local files."""
    jvm = spark._jvm
    assert jvm is not None
    settings = spark.sparkContext._jsc.hadoopConfiguration()
    local = jvm.java.net.URI.create("file:///")
    jvm.org.apache.hadoop.fs.FileSystem.get(local, settings).setWriteChecksum(False)


def _decided_by_user(defaults: Mapping[str, str]) -> set[str]:
    """Settings made where Spark itself looks for them: they win over ours too."""
    from pyspark import SparkConf, SparkContext

    if "PYSPARK_GATEWAY_PORT" in os.environ:
        SparkContext._ensure_initialized()
        return {name for name, _ in SparkConf().getAll()}
    return set(defaults)


def _defaults() -> dict[str, str]:
    """What Spark's launcher will read from the user's file, if there is one."""
    folder = os.environ.get("SPARK_CONF_DIR")
    if folder is None and "SPARK_HOME" in os.environ:
        folder = os.path.join(os.environ["SPARK_HOME"], "conf")
    if folder is None:
        return {}
    try:
        return settings_in_defaults(Path(folder, "spark-defaults.conf").read_text())
    except OSError:
        return {}


def _prepare_process(place: Place) -> None:
    """What Spark's launcher takes from the environment: Java, Python and its own home."""
    from tidelog.spark.runtime.cache_folder import cache_folder
    from tidelog.spark.runtime.java import java_home

    cache = cache_folder(os.environ)
    os.environ["JAVA_HOME"] = str(java_home(os.environ, cache))
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    if place.is_local and "SPARK_HOME" not in os.environ:
        os.environ["SPARK_HOME"] = str(spark_home(cache))


def spark_home(cache: Path) -> Path:
    """A home for Spark without `python/lib/pyspark.zip`.

    Python workers take PySpark from that archive if it is there, and compile it anew in every
    process; from the installed package they start in a fifth of the time. Only for local masters:
    YARN and Kubernetes send the archive to their nodes.
    """
    import pyspark

    from tidelog.spark.runtime.cache_folder import written_once

    package = Path(pyspark.__file__).parent
    identity = hashlib.sha256(f"{package} {pyspark.__version__} {_LOG_SETTINGS}".encode())
    target = cache / f"home-{identity.hexdigest()[:16]}"
    if not target.is_dir():
        with written_once(target) as made:
            for name in ("bin", "jars", "sbin"):
                (made / name).symlink_to(package / name)
            (made / "conf").mkdir()
            (made / "conf" / "log4j2.properties").write_text(_LOG_SETTINGS)
    return target
