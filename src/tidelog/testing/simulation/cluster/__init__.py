"""Whole clusters in the simulator: several real nodes, clients that find leaders, and faults."""
