"""Rows of Arrow to record batches: columns, partitions, batches. See `encode.batches`."""
