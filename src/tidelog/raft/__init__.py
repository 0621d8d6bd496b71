"""Consensus without I/O: the quorum of the metadata log. `replica.Replica` is the way in."""
