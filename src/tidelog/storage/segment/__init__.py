"""One segment: its .log file and the indexes beside it."""
