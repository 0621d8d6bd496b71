"""What can go wrong between an application and its broker."""

from tidelog.errors import TidelogError
from tidelog.protocol.errors import ErrorCode


class ClientError(TidelogError):
    """The broker or the client library refused a call; the text says which and why."""


class ConnectError(ClientError):
    """No broker answered at the given addresses."""


class CoordinatorError(ClientError):
    """No broker coordinates a group or a transactional id, or none does for this client."""

    def __init__(self, key: str, code: ErrorCode) -> None:
        super().__init__(f"no coordinator for {key}: {code.name}")
        self.code = code


class PublishError(ClientError):
    """A record was not acknowledged; it may or may not be in the log."""


class ConsumeError(ClientError):
    """Reading or committing failed."""


class SerializationError(ClientError):
    """A value does not fit its serialiser, or bytes do not parse."""
