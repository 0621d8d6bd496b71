"""Where a node's settings come from."""
