"""Principals, authentication, authorisation and quotas."""
