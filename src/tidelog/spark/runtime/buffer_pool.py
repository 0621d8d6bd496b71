"""Memory for large data that is filled, handed on, and soon let go of: it is used again then.

New memory of this size comes from the system in pages that are cleared one by one, which takes
longer than all of the decoding or encoding that fills it.
"""

import threading

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidelog.spark.runtime.compiled import Bytes, byte_view

ByteArray = npt.NDArray[np.uint8]

# One batch is held by Spark, or on its way to the broker, while the next is made.
_KEPT_COUNT_MAX = 2
_KEPT_BYTES_MAX = 32 * 1024 * 1024


class BufferPool:
    """Arrays that nobody uses now, the largest last.

    Memory may be let go of in any thread, and in the middle of anything: who finds the pool in
    use does without it.
    """

    def __init__(self) -> None:
        self._kept: list[ByteArray] = []
        self._lock = threading.Lock()

    def allocate(self, size: int) -> "PooledArray":
        """An array of at least so many bytes, with anything in it; larger ones come first."""
        array = None
        if self._lock.acquire(blocking=False):
            array = self._kept.pop() if self._kept else None
            self._lock.release()
        if array is None or len(array) < size:
            array = np.empty(size, dtype=np.uint8)
        return PooledArray(self, array)

    def give_back(self, array: ByteArray) -> None:
        if len(array) > _KEPT_BYTES_MAX or not self._lock.acquire(blocking=False):
            return
        self._kept.append(array)
        self._kept.sort(key=len)
        del self._kept[:-_KEPT_COUNT_MAX]
        self._lock.release()


class PooledArray:
    """An array for as long as anything refers to this, as its Arrow buffers do."""

    __slots__ = ("_pool", "array")

    def __init__(self, pool: BufferPool, array: ByteArray) -> None:
        self._pool = pool
        self.array = array

    def view(self) -> Bytes:
        """The bytes of the array for compiled functions."""
        return byte_view(self.array, writable=True)

    def buffer(self, size: int) -> pa.Buffer:
        """The first bytes of the array as an Arrow buffer."""
        return pa.foreign_buffer(self.array.ctypes.data, size, base=self)

    def __del__(self) -> None:
        self._pool.give_back(self.array)
