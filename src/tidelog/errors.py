"""The root of every error that Tidelog raises on purpose."""


class TidelogError(Exception):
    """An error that a user can cause; its text says what was wrong and what to do."""
