"""What the clients of a simulation do, one kind of client a module."""
