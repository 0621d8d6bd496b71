"""A real broker for tests, a pytest plugin, fault injection, history checking."""
