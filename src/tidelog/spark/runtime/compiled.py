"""Loops over bytes, compiled where numba is there, plain Python where it is not.

`compiled` marks a function whose source runs both ways with the same answers: it indexes buffers,
computes with 64-bit numbers that never overflow, and calls other functions of its kind. What it is
given comes from `byte_view` and `number_view`: numpy arrays for compiled code, memoryviews, which
plain Python indexes several times faster, otherwise. `copy_bytes` is memcpy; a slice assignment in
compiled code is a loop over single bytes and five times slower.

`TIDELOG_UNCOMPILED=1` in the environment leaves everything uncompiled.
"""

import os
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

try:
    if os.environ.get("TIDELOG_UNCOMPILED", "") not in ("", "0"):
        raise ImportError("compilation is switched off")
    import numba
    from numba.core import cgutils, types
    from numba.extending import intrinsic
except ImportError:
    IS_COMPILED = False
else:
    IS_COMPILED = True

F = TypeVar("F", bound=Callable[..., Any])

# What compiled functions index: see `byte_view` and `number_view`.
Bytes = Any
Numbers = Any


# Arrays come from the caller, who holds them: counting references to them on each use took longer
# than reading the varints of a record. Compiled functions make no arrays, so nothing is lost.
_WITHOUT_REFERENCE_COUNTS = {"_nrt": False}


def compiled(function: F) -> F:
    """The function as machine code that is kept on disk and runs without the interpreter's lock."""
    return _compile(function, forceinline=False)


def compiled_inline(function: F) -> F:
    """The same for a short function, which becomes part of each compiled caller."""
    return _compile(function, forceinline=True)


def _compile(function: F, *, forceinline: bool) -> F:
    if not IS_COMPILED:
        return function
    compile_lazily: Any = numba.njit
    options = {"nogil": True, "forceinline": forceinline, **_WITHOUT_REFERENCE_COUNTS}
    made: F
    try:
        made = compile_lazily(cache=True, **options)(function)
    except RuntimeError:
        # No folder can be written to: compile in each process.
        made = compile_lazily(**options)(function)
    return made


def byte_view(buffer: Any, *, writable: bool = False) -> Bytes:
    """The bytes of a buffer for compiled functions, not copied."""
    if not IS_COMPILED:
        return memoryview(buffer).cast("B")
    array = np.frombuffer(buffer, dtype=np.uint8)
    # One type for all that is only read: a function is compiled once per type.
    array.flags.writeable = writable
    return array


def number_view(array: npt.NDArray[np.signedinteger]) -> Numbers:
    """The cells of an array of any dimension for compiled functions, not copied."""
    return array if IS_COMPILED else memoryview(array.data)


def _copy_slice(target: Bytes, target_at: int, source: Bytes, source_at: int, size: int) -> None:
    target[target_at : target_at + size] = source[source_at : source_at + size]


def _type_memcpy(
    _: Any, target: Any, target_at: Any, source: Any, source_at: Any, size: Any
) -> Any:
    """The types of a memcpy, and what writes its machine code: numba's form of an intrinsic."""
    number = types.int64
    return types.void(target, number, source, number, number), _write_memcpy


def _write_memcpy(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
    target, target_at, source, source_at, size = arguments
    target_type, _, source_type, _, _ = signature.args
    to = context.make_array(target_type)(context, builder, target).data
    of = context.make_array(source_type)(context, builder, source).data
    one = context.get_constant(types.intp, 1)
    write: Any = cgutils.raw_memcpy
    write(builder, builder.gep(to, [target_at]), builder.gep(of, [source_at]), size, one)
    return context.get_dummy_value()


def _make_copy() -> Any:
    return intrinsic(_type_memcpy) if IS_COMPILED else _copy_slice


# copy_bytes(target, target_at, source, source_at, size); compiled code checks nothing here.
copy_bytes: Callable[[Bytes, int, Bytes, int, int], None] = _make_copy()
