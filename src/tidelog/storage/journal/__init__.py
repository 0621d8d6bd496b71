"""The journal of a log directory: one write and one sync make all appends of a turn durable."""
