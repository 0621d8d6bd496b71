"""What a Python worker has imported is frozen once, and only in a worker."""

import gc
import subprocess
import sys

from tidelog.spark.runtime.worker_memory import freeze_imports

# A daemon of Spark is a module that is run; its name is what makes a process a worker.
_AS_WORKER = """
import gc, sys
sys.modules["__main__"].__spec__ = type("Spec", (), {"name": "pyspark.daemon"})
from tidelog.spark.runtime.worker_memory import freeze_imports

freeze_imports()
first = gc.get_freeze_count()
kept = [[] for _ in range(1000)]
freeze_imports()
same = gc.get_freeze_count()
import fractions
freeze_imports()
assert first > 0 and abs(same - first) < 1000 and gc.get_freeze_count() > same, (first, same)
"""


def test_a_worker_freezes_what_was_imported() -> None:
    subprocess.run([sys.executable, "-c", _AS_WORKER], check=True)


def test_other_processes_are_left_alone() -> None:
    before = gc.get_freeze_count()
    freeze_imports()
    assert gc.get_freeze_count() == before
