"""Compaction: what stays of a log, and how it takes the place of what was there."""
