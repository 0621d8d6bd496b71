"""What can go wrong between an application and its broker."""

from tidelog.errors import TidelogError
from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.topic_partition import TopicPartition


class ClientError(TidelogError):
    """The broker or the client library refused a call; the text says which and why."""


class ConnectError(ClientError):
    """No broker answered at the given addresses."""


class AnswerTimeout(ConnectError):
    """A broker was asked and did not answer in time; it may do what it was asked all the same."""


class BrokerError(ClientError):
    """A broker answered with an error; `code` says which, `message` what the broker says of it."""

    def __init__(self, code: ErrorCode, subject: str, message: str | None = None) -> None:
        told = f"{message} ({code.name})" if message else code.name
        super().__init__(f"{subject}: {told}")
        self.code = code


class NotServedError(ClientError):
    """The broker does not serve an API, or none of the versions of it that this client knows."""


class RetriableError(BrokerError):
    """An error after which the same call may succeed in a moment."""


class RetriesExhausted(ClientError):
    """A call did not succeed in time; the text says how often it was tried, and why it failed."""


class PublishError(ClientError):
    """A record was not acknowledged; it may or may not be in the log."""


class DeliveryTimeout(PublishError):
    """Records of a partition were not acknowledged in time; `reason` is the last failure."""

    def __init__(self, partition: TopicPartition, timeout_s: float, reason: str) -> None:
        super().__init__(
            f"{partition}: records were not acknowledged within {timeout_s:g} s: {reason}"
        )
        self.partition = partition
        self.timeout_s = timeout_s
        self.reason = reason


class ConsumeError(ClientError):
    """Reading or committing failed."""


class SerializationError(ClientError):
    """A value does not fit its serialiser, or bytes do not parse."""
