"""Handlers about credentials, access control and tokens."""
