"""Spark's Java process, which a SIGTERM does not reach and which does not outlive its driver."""

import os
import signal
import subprocess
import sys

import psutil
import pytest

_WAIT_S = 60.0

_DRIVER = """
import time
from tidelog.spark.runtime.session import _prepare_process, place_of
from tidelog.spark.runtime.detached_java import start_detached_java
_prepare_process(place_of("local[1]", {}, {}, {}))
start_detached_java({"spark.driver.memory": "256m"})
print("started", flush=True)
time.sleep(600)
"""


@pytest.mark.parametrize("ends", [signal.SIGTERM, signal.SIGKILL])
def test_java_ends_with_its_driver_and_only_then(ends: signal.Signals) -> None:
    driver = subprocess.Popen(
        [sys.executable, "-c", _DRIVER], stdout=subprocess.PIPE, text=True, start_new_session=True
    )
    try:
        assert driver.stdout is not None
        assert driver.stdout.readline() == "started\n"
        started = psutil.Process(driver.pid).children(recursive=True)
        (java,) = [each for each in started if each.name() == "java"]
        assert os.getpgid(java.pid) != driver.pid
        java.terminate()
        with pytest.raises(psutil.TimeoutExpired):
            java.wait(1)
        os.killpg(driver.pid, ends)
        driver.wait(_WAIT_S)
        java.wait(_WAIT_S)
    finally:
        driver.kill()
        driver.communicate()
