"""Our own client of a cluster for commands, with errors as a person expects them."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from tidelog.cli.failures import EXIT_FAILED, EXIT_NOT_FOUND, fail
from tidelog.client.cluster import Cluster, ClusterClient
from tidelog.client.errors import BrokerError, ClientError, ConnectError
from tidelog.protocol.errors import ErrorCode

CALL_TIMEOUT_S = 15.0

_NOT_FOUND = frozenset(
    {
        ErrorCode.GROUP_ID_NOT_FOUND,
        ErrorCode.TRANSACTIONAL_ID_NOT_FOUND,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
    }
)


@contextmanager
def cluster_client(
    bootstrap: str, settings: Mapping[str, str] | None = None
) -> Iterator[ClusterClient]:
    """A client of a cluster that has answered; the command ends when none does.

    The command also ends, with one line, when a call of the block fails with a ClientError.
    `settings` are those of the option --client.
    """
    client_id = _client_id(settings or {})
    try:
        with Cluster(bootstrap, client_id=client_id, timeout_s=CALL_TIMEOUT_S) as cluster:
            try:
                cluster.metadata([])
            except ConnectError as error:
                fail(f"{error}; is one running? (tidelog up)")
            yield ClusterClient(cluster, CALL_TIMEOUT_S)
    except BrokerError as error:
        fail(str(error), exit_code=_exit_code(error.code))
    except ClientError as error:
        fail(str(error))


def check(error_code: int, doing: str, message: str | None = None) -> None:
    """End the command if an answer is an error; `message` is what the broker said about it."""
    if error_code:
        code = ErrorCode(error_code)
        told = f"{message} ({code.name})" if message else code.name
        fail(f"{doing}: {told}", exit_code=_exit_code(code))


def _client_id(settings: Mapping[str, str]) -> str:
    """What settings name this client; the command ends for one that it cannot have."""
    for name, value in settings.items():
        if name == "security.protocol" and value.upper() != "PLAINTEXT":
            fail(f"--client {name}={value} is not supported: this command speaks PLAINTEXT only")
        if name not in ("client.id", "security.protocol"):
            fail(f"--client {name} is not supported: this command knows client.id only")
    return settings.get("client.id", "tidelog-cli")


def _exit_code(code: ErrorCode) -> int:
    return EXIT_NOT_FOUND if code in _NOT_FOUND else EXIT_FAILED
