"""The fixture `tidelog_broker` for pytest."""
