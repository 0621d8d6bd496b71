"""A partition on this node: its replication state, its log, and who waits for it."""
