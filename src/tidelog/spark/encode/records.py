"""Records of a batch, written by compiled loops.

A record is: its length, a byte of attributes, the time and the offset as distances from the
batch's, key, value and headers; all numbers are zigzag varints. Every record has the batch's time
here, so that distance is one byte of 0.
"""

from tidelog.spark.runtime.compiled import Bytes, Numbers, compiled, copy_bytes

# Attributes and the distance of the time.
_CONSTANT_BYTES = 2


@compiled
def _varint_size(number: int) -> int:
    """The bytes of a number from 0 on; null, which is -1, takes one as well."""
    rest = number >> 6
    size = 1
    while rest > 0:
        rest >>= 7
        size += 1
    return size


@compiled
def _write_varint(out: Bytes, at: int, number: int) -> int:
    zigzag = number << 1 if number >= 0 else 1
    while zigzag >= 0x80:
        out[at] = (zigzag & 0x7F) | 0x80
        zigzag >>= 7
        at += 1
    out[at] = zigzag
    return at + 1


@compiled
def measure_rows(
    row_sizes: Numbers,
    key_sizes: Numbers,
    value_sizes: Numbers,
    header_starts: Numbers,
    header_counts: Numbers,
    name_sizes: Numbers,
    header_value_sizes: Numbers,
) -> None:
    """What each row takes as a record, but for its length and its distance from the offset."""
    for row in range(len(row_sizes)):
        size = _CONSTANT_BYTES + _varint_size(header_counts[row])
        size += _varint_size(key_sizes[row]) + max(key_sizes[row], 0)
        size += _varint_size(value_sizes[row]) + max(value_sizes[row], 0)
        for entry in range(header_starts[row], header_starts[row] + header_counts[row]):
            size += _varint_size(name_sizes[entry]) + name_sizes[entry]
            size += _varint_size(header_value_sizes[entry]) + max(header_value_sizes[entry], 0)
        row_sizes[row] = size


@compiled
def cut_batches(
    order: Numbers, place_starts: Numbers, row_sizes: Numbers, bytes_max: int, batches: Numbers
) -> int:
    """Cuts each place's rows into batches whose records are at most `bytes_max`, or one record.

    Puts (place, first of `order`, end in `order`, bytes of records) into the rows of `batches`, and
    returns how many there are.
    """
    count = 0
    for place in range(len(place_starts) - 2):
        first = place_starts[place]
        end = place_starts[place + 1]
        size = 0
        for at in range(first, end):
            body = row_sizes[order[at]] + _varint_size(at - first)
            record = _varint_size(body) + body
            if size > 0 and size + record > bytes_max:
                batches[count, 0] = place
                batches[count, 1] = first
                batches[count, 2] = at
                batches[count, 3] = size
                count += 1
                first = at
                size = 0
                body = row_sizes[order[at]] + 1
                record = _varint_size(body) + body
            size += record
        if size > 0:
            batches[count, 0] = place
            batches[count, 1] = first
            batches[count, 2] = end
            batches[count, 3] = size
            count += 1
    return count


@compiled
def write_batches(
    out: Bytes,
    gap_bytes: int,
    batches: Numbers,
    batch_count: int,
    order: Numbers,
    row_sizes: Numbers,
    key_data: Bytes,
    key_starts: Numbers,
    key_sizes: Numbers,
    value_data: Bytes,
    value_starts: Numbers,
    value_sizes: Numbers,
    header_starts: Numbers,
    header_counts: Numbers,
    name_data: Bytes,
    name_starts: Numbers,
    name_sizes: Numbers,
    header_value_data: Bytes,
    header_value_starts: Numbers,
    header_value_sizes: Numbers,
) -> int:
    """Writes the records of all batches one behind the other, with `gap_bytes` before each batch.

    Returns where the last one ends. About 60 ns a record and a copy of its bytes.
    """
    at = 0
    for batch in range(batch_count):
        at += gap_bytes
        first = batches[batch, 1]
        for index in range(first, batches[batch, 2]):
            row = order[index]
            at = _write_varint(out, at, row_sizes[row] + _varint_size(index - first))
            out[at] = 0
            out[at + 1] = 0
            at = _write_varint(out, at + 2, index - first)
            size = key_sizes[row]
            at = _write_varint(out, at, size)
            if size > 0:
                copy_bytes(out, at, key_data, key_starts[row], size)
                at += size
            size = value_sizes[row]
            at = _write_varint(out, at, size)
            if size > 0:
                copy_bytes(out, at, value_data, value_starts[row], size)
                at += size
            count = header_counts[row]
            at = _write_varint(out, at, count)
            for entry in range(header_starts[row], header_starts[row] + count):
                size = name_sizes[entry]
                at = _write_varint(out, at, size)
                if size > 0:
                    copy_bytes(out, at, name_data, name_starts[entry], size)
                    at += size
                size = header_value_sizes[entry]
                at = _write_varint(out, at, size)
                if size > 0:
                    copy_bytes(out, at, header_value_data, header_value_starts[entry], size)
                    at += size
    return at
