"""Python workers that Spark keeps: what they have imported is not searched after every task.

Spark's daemon collects garbage after each task before a worker may take the next. With Arrow and
numba imported that takes 30 ms, again and again over the same objects, which never go away. Frozen,
they are left out of it.
"""

import gc
import sys

_DAEMONS = ("pyspark.daemon", "tidelog.spark.runtime.python_daemon")

_frozen_modules = 0


def freeze_imports() -> None:
    """Leave all that is alive now out of future collections, if modules came in since last time.

    To be called at the end of a task. Nothing happens outside of a worker of Spark's daemon.
    """
    global _frozen_modules
    if len(sys.modules) == _frozen_modules or not _is_worker():
        return
    _frozen_modules = len(sys.modules)
    gc.collect()
    gc.freeze()


def _is_worker() -> bool:
    spec = getattr(sys.modules["__main__"], "__spec__", None)
    return spec is not None and spec.name in _DAEMONS
