"""Asks the node until there is an answer that counts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, NamedTuple, TypeVar

from tidelog.protocol.apis.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.schema import Message
from tidelog.server.network.peer_connection import PeerError
from tidelog.testing.simulation.client import SimulatedClient

Response = TypeVar("Response", bound=Message)

RETRIABLE = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.OFFSET_NOT_AVAILABLE,
        ErrorCode.NOT_CONTROLLER,
        ErrorCode.BROKER_NOT_AVAILABLE,
        ErrorCode.INVALID_REPLICATION_FACTOR,
    }
)
# With these an attempt may have been carried out: a coordinator that loses its partition says
# NOT_COORDINATOR also for what it has written and not seen committed.
_UNCLEAR = (
    ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.KAFKA_STORAGE_ERROR,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    ErrorCode.NOT_CONTROLLER,
)
GROUP, TRANSACTION = 0, 1
_RETRY_S = 0.05


class Answered(NamedTuple, Generic[Response]):
    """An answer, its error, and whether an earlier attempt may have been carried out."""

    response: Response
    code: ErrorCode
    is_repeated: bool


async def ask(
    client: SimulatedClient,
    request: Message,
    answer: type[Response],
    code_of: Callable[[Response], int],
    *,
    version_max: int | None = None,
    retriable: frozenset[ErrorCode] = RETRIABLE,
) -> Answered[Response]:
    """Ask until an answer comes whose error is not retriable."""
    is_repeated = client.router.is_forwarded(request)
    while True:
        try:
            response = await client.call(request, answer, version_max=version_max)
        except PeerError as error:
            client.trace(f"{type(request).__name__}: {error}")
            is_repeated = True
        else:
            code = ErrorCode(code_of(response))
            if code not in retriable:
                return Answered(response, code, is_repeated)
            is_repeated |= code in _UNCLEAR
        await client.sleep(_RETRY_S * client.random.random())


async def find_coordinator(client: SimulatedClient, key: str, key_type: int) -> None:
    """Have the coordinator's internal topic made, as every client does before it goes there."""
    await ask(
        client,
        FindCoordinatorRequest(key_type=key_type, coordinator_keys=[key]),
        FindCoordinatorResponse,
        lambda response: response.coordinators[0].error_code,
    )
