"""The network side of a node: reactor, listeners, connections of clients and to peers."""
