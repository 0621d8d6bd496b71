"""Whom brokers take batches to be from."""

from dataclasses import dataclass

from tidelog.client.cluster.client import ClusterClient
from tidelog.client.errors import PublishError
from tidelog.protocol.apis.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.record_batch import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, NO_SEQUENCE

# Brokers check it though there is no transaction.
_TRANSACTION_TIMEOUT_MS = 60_000
_SEQUENCE_MASK = 2**31 - 1


@dataclass(frozen=True, slots=True)
class ProducerIdentity:
    """Without a producer id, records have no sequence numbers."""

    producer_id: int = NO_PRODUCER_ID
    producer_epoch: int = NO_PRODUCER_EPOCH
    is_transactional: bool = False

    def sequence(self, record: int) -> int:
        """The sequence number of a partition's record by its count; after 2^31 - 1 comes 0."""
        return NO_SEQUENCE if self.producer_id == NO_PRODUCER_ID else record & _SEQUENCE_MASK


def init_idempotent(client: ClusterClient) -> ProducerIdentity:
    """A new identity of a producer without transactions."""
    answer = client.ask_any(
        InitProducerIdRequest(
            transactional_id=None, transaction_timeout_ms=_TRANSACTION_TIMEOUT_MS
        ),
        InitProducerIdResponse,
        lambda response: response.error_code,
    )
    if answer.error_code:
        raise PublishError(f"no producer id: {ErrorCode(answer.error_code).name}")
    return ProducerIdentity(answer.producer_id, answer.producer_epoch)
