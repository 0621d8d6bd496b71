"""Groups, offsets and transactions: state machines on a log."""
