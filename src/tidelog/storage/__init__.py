"""The log: segments, indexes, producer state, journal, recovery, log directories."""
