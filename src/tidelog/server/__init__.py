"""The node: reactor, connections, dispatch, one handler module per API."""
