"""Which partition a row goes to, and the rows in the order of their partitions."""

from tidelog.spark.runtime.compiled import Bytes, Numbers, compiled

_SEED = 0x9747B28C
_M = 0x5BD1E995
_MASK = 0xFFFFFFFF


@compiled
def murmur2(data: Bytes, start: int, size: int) -> int:
    """The hash of `data[start : start + size]` that Java's producer takes a key's partition from.

    The same as `tidelog.client.partitioners.key_hash.murmur2`.
    """
    value = (_SEED ^ size) & _MASK
    whole = start + (size & ~3)
    for at in range(start, whole, 4):
        word = data[at] | data[at + 1] << 8 | data[at + 2] << 16 | data[at + 3] << 24
        word = word * _M & _MASK
        word ^= word >> 24
        value = (value * _M & _MASK) ^ (word * _M & _MASK)
    tail = size & 3
    if tail:
        word = 0
        for index in range(tail):
            word |= data[whole + index] << 8 * index
        value = (value ^ word) * _M & _MASK
    value ^= value >> 13
    value = value * _M & _MASK
    return value ^ value >> 15


@compiled
def choose_partitions(
    chosen: Numbers,
    topics: Numbers,
    partition_counts: Numbers,
    key_data: Bytes,
    key_starts: Numbers,
    key_sizes: Numbers,
    row_sizes: Numbers,
    sticky: Numbers,
    sticky_bytes: Numbers,
    sticky_bytes_max: int,
) -> None:
    """Puts a partition into each row of `chosen` that has none (-1) yet.

    A key decides by its hash. Rows without one stay with the partition that is `sticky` for their
    topic until `sticky_bytes_max` went there, then the next one takes over: batches are large, and
    all partitions get their share. 10 ns a row.
    """
    for row in range(len(chosen)):
        if chosen[row] >= 0:
            continue
        topic = topics[row]
        count = partition_counts[topic]
        if key_sizes[row] >= 0:
            value = murmur2(key_data, key_starts[row], key_sizes[row])
            chosen[row] = (value & 0x7FFFFFFF) % count
            continue
        if sticky_bytes[topic] and sticky_bytes[topic] + row_sizes[row] > sticky_bytes_max:
            sticky[topic] += 1
            sticky_bytes[topic] = 0
        sticky[topic] %= count
        sticky_bytes[topic] += row_sizes[row]
        chosen[row] = sticky[topic]


@compiled
def sort_rows(places: Numbers, place_starts: Numbers, order: Numbers) -> None:
    """Puts the numbers of the rows into `order`, place by place and each place's in their order.

    `place_starts` has a cell per place and two more, all 0; after the call place p has the rows
    `order[place_starts[p] : place_starts[p + 1]]`.
    """
    for row in range(len(places)):
        place_starts[places[row] + 2] += 1
    for place in range(2, len(place_starts)):
        place_starts[place] += place_starts[place - 1]
    for row in range(len(places)):
        place = places[row] + 1
        order[place_starts[place]] = row
        place_starts[place] += 1
