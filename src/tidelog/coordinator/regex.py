"""Regular expressions of clients over names: RE2, which Kafka's brokers use too (as RE2/J).

Clients send these expressions, so matching has to be linear in the length of the name whatever the
expression is: Python's `re` backtracks, and one hostile expression would stall the node.
"""

from tidelog.errors import TidelogError

# For one compiled expression. A larger one is refused when it is compiled.
_MEMORY_BYTES_MAX = 1024 * 1024


class InvalidRegex(TidelogError):
    """The expression is malformed or too large, or uses what RE2 does not have."""


class Regex:
    """A compiled expression. Raises InvalidRegex."""

    def __init__(self, expression: str) -> None:
        # Few nodes ever see an expression: the others need not load the library.
        import re2

        options = re2.Options()
        options.max_mem = _MEMORY_BYTES_MAX
        options.never_capture = True
        options.log_errors = False
        try:
            self._compiled = re2.compile(expression, options)
        except re2.error as error:
            (reason,) = error.args
            told = reason.decode() if isinstance(reason, bytes) else reason
            raise InvalidRegex(told) from None

    def matches(self, name: str) -> bool:
        """Whether the whole name matches; a part of it does not count."""
        return self._compiled.fullmatch(name) is not None
