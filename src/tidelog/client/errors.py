"""What can go wrong between an application and its broker."""

from tidelog.errors import TidelogError


class ClientError(TidelogError):
    """The broker or the client library refused a call; the text says which and why."""


class ConnectError(ClientError):
    """No broker answered at the given addresses."""


class PublishError(ClientError):
    """A record was not acknowledged; it may or may not be in the log."""


class ConsumeError(ClientError):
    """Reading or committing failed."""


class SerializationError(ClientError):
    """A value does not fit its serialiser, or bytes do not parse."""
