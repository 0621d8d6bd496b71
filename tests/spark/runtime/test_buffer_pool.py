"""Memory that is used again, but never while an Arrow batch still lies in it."""

import gc

import numpy as np
import pyarrow as pa

from tidelog.spark.runtime.buffer_pool import BufferPool

SIZE = 100_000


def array_of(pool: BufferPool, number: int) -> pa.Array:
    memory = pool.allocate(SIZE)
    memory.array[:SIZE] = number
    return pa.Array.from_buffers(pa.uint8(), SIZE, [None, memory.buffer(SIZE)])


def address(array: pa.Array) -> int:
    return int(array.buffers()[1].address)


def test_what_arrow_still_holds_is_not_used_again() -> None:
    pool = BufferPool()
    held = [array_of(pool, number) for number in range(5)]
    slices = [each.slice(10, 20) for each in held]
    del held
    others = [array_of(pool, 100 + number) for number in range(5)]
    assert [np.unique(each).tolist() for each in slices] == [[0], [1], [2], [3], [4]]
    assert [np.unique(each).tolist() for each in others] == [[100], [101], [102], [103], [104]]


def test_what_arrow_let_go_of_is_used_again() -> None:
    pool = BufferPool()
    first = array_of(pool, 1)
    place = address(first)
    del first
    assert address(array_of(pool, 2)) == place


def test_little_is_kept_and_the_largest_of_it() -> None:
    pool = BufferPool()
    sizes = (100, 400, 200, 300)
    arrays = [pool.allocate(size) for size in sizes]
    while arrays:
        arrays.pop()
    gc.collect()
    kept = [pool.allocate(0) for _ in sizes]
    assert [len(each.array) for each in kept] == [400, 300, 0, 0]


def test_a_batch_may_be_let_go_of_while_the_pool_is_in_use() -> None:
    pool = BufferPool()
    held = pool.allocate(10)
    with pool._lock:
        del held
        assert len(pool.allocate(5).array) == 5
