"""Spark's Java process, kept from signals that are meant for the process that drives it.

A service manager, `timeout` or a shell may send SIGTERM to a whole process group, or to all
processes of a service. PySpark keeps only SIGINT from Java, so Spark would end at once, under a
driver that has begun to drain. A session and process group of its own keep Java out of the first
from its first moment; the second it ignores as soon as it listens. It still ends with its driver,
however that one ends: its standard input is closed then.
"""

from collections.abc import Mapping


def start_detached_java(settings: Mapping[str, str]) -> None:
    """Start the Java process of this process; `settings` are those of the session to come."""
    from pyspark import SparkConf, SparkContext
    from pyspark.java_gateway import launch_gateway

    conf = SparkConf()
    for name, value in settings.items():
        conf.set(name, value)
    gateway = launch_gateway(conf, {"start_new_session": True})  # type: ignore[no-untyped-call]
    SparkContext._ensure_initialized(gateway=gateway, conf=conf)
    java = gateway.jvm.sun.misc
    java.Signal.handle(java.Signal("TERM"), java.SignalHandler.SIG_IGN)
