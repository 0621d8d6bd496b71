"""Loading the functions of Python steps, from modules or from files beside the pipeline."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from types import ModuleType
from typing import Any

from tidelog.spark.errors import SparkError
from tidelog.spark.pipeline.file.model import FunctionReference


def load_function(reference: FunctionReference) -> Callable[..., Any]:
    """The function; SparkError if there is none. What the module raises comes through."""
    if reference.file is not None:
        module = _load_file(reference.file)
    else:
        assert reference.module is not None
        module = importlib.import_module(reference.module)
    function = getattr(module, reference.function, None)
    if not callable(function):
        raise SparkError(f"{reference}: there is no such function")
    return function  # type: ignore[no-any-return]


def _load_file(file: Path) -> ModuleType:
    """A file as a module whose functions travel to the executors with what uses them."""
    name = f"{file.stem}_{sha256(str(file).encode()).hexdigest()[:8]}"
    specification = importlib.util.spec_from_file_location(name, file)
    if specification is None or specification.loader is None:
        raise SparkError(f"{file} cannot be loaded")
    module = importlib.util.module_from_spec(specification)
    sys.modules[name] = module
    folder = str(file.parent)
    # It may import what stands beside it.
    sys.path.insert(0, folder)
    try:
        specification.loader.exec_module(module)
    except FileNotFoundError as error:
        raise SparkError(f"{file} is not there") from error
    finally:
        sys.path.remove(folder)

    from pyspark import cloudpickle

    # Executors do not have the file: without this, pickle would send its name alone.
    cloudpickle.register_pickle_by_value(module)  # type: ignore[no-untyped-call]
    return module
