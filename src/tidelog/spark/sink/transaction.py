"""Transactions of a writer: begun by a task, ended by the driver, looked at by both.

Brokers with transactions v2 are spoken to in that way, older ones in the old way:

* v2: writing adds partitions and offsets to the transaction, and its end raises the epoch, so the
  next one needs no InitProducerId;
* v1: partitions and offsets are added by calls of their own, and each transaction begins with
  InitProducerId, which fences whoever else had the transactional id.
"""

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from tidelog.client.cluster import (
    COORDINATOR_GROUP,
    COORDINATOR_TRANSACTION,
    ClusterClient,
    Retries,
)
from tidelog.errors import TidelogError
from tidelog.protocol.apis.add_offsets_to_txn import (
    AddOffsetsToTxnRequest,
    AddOffsetsToTxnResponse,
)
from tidelog.protocol.apis.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
)
from tidelog.protocol.apis.api_versions import ApiVersionsRequest, ApiVersionsResponse
from tidelog.protocol.apis.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    TransactionState,
)
from tidelog.protocol.apis.end_txn import EndTxnRequest, EndTxnResponse
from tidelog.protocol.apis.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from tidelog.protocol.apis.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
)
from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.topic_partition import TopicPartition
from tidelog.spark.errors import OptionError, SparkError
from tidelog.spark.sink.lent_client import shorten_timeout

_log = logging.getLogger(__name__)

ONGOING = "Ongoing"
_COMMITTED_STATES = ("PrepareCommit", "CompleteCommit")
_ENDING_STATES = ("PrepareCommit", "PrepareAbort")

# Versions up to which each flow goes.
_INIT_VERSION_MAX = 5
_END_VERSION_MAX = {False: 4, True: 5}
_TXN_OFFSET_COMMIT_VERSION_MAX = {False: 4, True: 5}
_ADD_PARTITIONS_VERSION_MAX = 3

# From this level of the feature transaction.version on, writing to a partition makes it part of
# the transaction, and each end of a transaction raises the producer's epoch.
_TRANSACTION_FEATURE = "transaction.version"
_TRANSACTIONS_V2 = 2

FENCED = frozenset(
    {
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.PRODUCER_FENCED,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
        ErrorCode.INVALID_TXN_STATE,
        ErrorCode.TRANSACTION_ABORTABLE,
        ErrorCode.UNKNOWN_PRODUCER_ID,
    }
)


@dataclass(frozen=True, slots=True)
class OpenTransaction:
    """A transaction by what ends it."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    is_v2: bool

    def is_same(self, state: TransactionState) -> bool:
        """Whether the coordinator has this very transaction open."""
        return (
            state.transaction_state == ONGOING
            and state.producer_id == self.producer_id
            and state.producer_epoch == self.producer_epoch
        )

    def was_committed(self, state: TransactionState) -> bool:
        """Whether the coordinator's last word on the id is the commit of this transaction.

        If something came after it, the coordinator no longer knows, and this is False.
        """
        epoch = self.producer_epoch + 1 if self.is_v2 else self.producer_epoch
        return (
            state.transaction_state in _COMMITTED_STATES
            and state.producer_id == self.producer_id
            and state.producer_epoch == epoch
        )


def _transaction_version(client: ClusterClient) -> int:
    """The level of the feature transaction.version; 0 on brokers that do not have it."""
    view = client.cluster.view
    if view.features is None:
        request = ApiVersionsRequest(client_software_name="tidelog", client_software_version="0")
        response = client.ask_any(
            request, ApiVersionsResponse, lambda response: response.error_code
        )
        view.features = {each.name: each.max_version_level for each in response.finalized_features}
    return view.features.get(_TRANSACTION_FEATURE, 0)


class Transactions:
    """The calls to the coordinators of transactions."""

    def __init__(self, client: ClusterClient) -> None:
        self._client = client

    @property
    def is_v2(self) -> bool:
        """Which of the two flows the brokers take."""
        return _transaction_version(self._client) >= _TRANSACTIONS_V2

    def init(self, transactional_id: str, timeout_ms: int) -> OpenTransaction:
        """A new epoch of a transactional id. What was open under it is rolled back; who had it
        before is fenced; a commit under way is waited for."""
        request = InitProducerIdRequest(
            transactional_id=transactional_id, transaction_timeout_ms=timeout_ms
        )
        response = self._client.ask_coordinator(
            COORDINATOR_TRANSACTION,
            transactional_id,
            request,
            InitProducerIdResponse,
            lambda response: response.error_code,
            version_max=_INIT_VERSION_MAX,
        )
        code = ErrorCode(response.error_code)
        if code is ErrorCode.INVALID_TRANSACTION_TIMEOUT:
            raise OptionError(
                f"kafka.transaction.timeout.ms is {timeout_ms}, more than the broker's"
                " transaction.max.timeout.ms: lower it, or raise that of the broker"
            )
        if code:
            raise SparkError(f"no producer id for {transactional_id}: {code.name}")
        return OpenTransaction(
            transactional_id, response.producer_id, response.producer_epoch, self.is_v2
        )

    def add_partitions(
        self, transaction: OpenTransaction, partitions: Iterable[TopicPartition]
    ) -> None:
        """Make partitions part of a transaction of the old flow."""
        topics: dict[str, list[int]] = {}
        for topic, partition in partitions:
            topics.setdefault(topic, []).append(partition)
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=transaction.transactional_id,
            v3_and_below_producer_id=transaction.producer_id,
            v3_and_below_producer_epoch=transaction.producer_epoch,
            v3_and_below_topics=[
                AddPartitionsToTxnTopic(name=name, partitions=indexes)
                for name, indexes in topics.items()
            ],
        )
        response = self._client.ask_coordinator(
            COORDINATOR_TRANSACTION,
            transaction.transactional_id,
            request,
            AddPartitionsToTxnResponse,
            _worst_partition_code,
            version_max=_ADD_PARTITIONS_VERSION_MAX,
        )
        code = ErrorCode(_worst_partition_code(response))
        if code:
            raise SparkError(
                f"{transaction.transactional_id}: no partitions can be added: {code.name}"
            )

    def commit_offset(
        self, transaction: OpenTransaction, group: str, place: TopicPartition, offset: int
    ) -> ErrorCode:
        """Make an offset of a group part of the transaction, which begins it if it was not begun.

        What the coordinator refuses is returned: it may be that another has the transactional id.
        """
        if not transaction.is_v2:
            added = self._client.ask_coordinator(
                COORDINATOR_TRANSACTION,
                transaction.transactional_id,
                AddOffsetsToTxnRequest(
                    transactional_id=transaction.transactional_id,
                    producer_id=transaction.producer_id,
                    producer_epoch=transaction.producer_epoch,
                    group_id=group,
                ),
                AddOffsetsToTxnResponse,
                lambda response: response.error_code,
                version_max=_ADD_PARTITIONS_VERSION_MAX,
            )
            if added.error_code:
                return ErrorCode(added.error_code)
        request = TxnOffsetCommitRequest(
            transactional_id=transaction.transactional_id,
            group_id=group,
            producer_id=transaction.producer_id,
            producer_epoch=transaction.producer_epoch,
            topics=[
                TxnOffsetCommitRequestTopic(
                    name=place.topic,
                    partitions=[
                        TxnOffsetCommitRequestPartition(
                            partition_index=place.partition,
                            committed_offset=offset,
                            committed_metadata="",
                        )
                    ],
                )
            ],
        )
        response = self._client.ask_coordinator(
            COORDINATOR_GROUP,
            group,
            request,
            TxnOffsetCommitResponse,
            _offset_code,
            version_max=_TXN_OFFSET_COMMIT_VERSION_MAX[transaction.is_v2],
        )
        return ErrorCode(_offset_code(response))

    def describe(self, transactional_ids: Iterable[str]) -> dict[str, TransactionState]:
        """What the coordinators know of transactional ids."""
        responses = self._client.ask_coordinators(
            COORDINATOR_TRANSACTION,
            {
                each: DescribeTransactionsRequest(transactional_ids=[each])
                for each in transactional_ids
            },
            DescribeTransactionsResponse,
            lambda response: response.transaction_states[0].error_code,
        )
        return {each: response.transaction_states[0] for each, response in responses.items()}

    def still_open(self, states: Mapping[str, TransactionState]) -> list[OpenTransaction]:
        """The transactions that were open when they were described."""
        return [
            OpenTransaction(each, state.producer_id, state.producer_epoch, self.is_v2)
            for each, state in states.items()
            if state.transaction_state == ONGOING
        ]

    def describe_settled(self, transactional_ids: Sequence[str]) -> dict[str, TransactionState]:
        """The same, when no commit or abort is under way any more."""
        retries = Retries(self._client.timeout_s)
        while True:
            states = self.describe(transactional_ids)
            ending = [
                each for each, state in states.items() if state.transaction_state in _ENDING_STATES
            ]
            if not ending:
                return states
            retries.wait(f"the transaction {ending[0]}", "it is being completed")

    def end(
        self, transactions: Sequence[OpenTransaction], *, commit: bool
    ) -> dict[OpenTransaction, ErrorCode]:
        """Commit or abort; returns those that the coordinators refused to end, and why."""
        refused: dict[OpenTransaction, ErrorCode] = {}
        for is_v2 in (False, True):
            some = {each.transactional_id: each for each in transactions if each.is_v2 is is_v2}
            responses = self._client.ask_coordinators(
                COORDINATOR_TRANSACTION,
                {each: _end_request(transaction, commit) for each, transaction in some.items()},
                EndTxnResponse,
                lambda response: response.error_code,
                version_max=_END_VERSION_MAX[is_v2],
            )
            refused |= {
                some[each]: ErrorCode(response.error_code)
                for each, response in responses.items()
                if response.error_code
            }
        return refused

    def roll_back(self, transaction: OpenTransaction) -> None:
        """Abort what a task that fails has open, so that readers need not wait for its timeout.

        Never fails: the error that is on its way is the one to be told.
        """
        shorten_timeout(self._client)
        try:
            self.end([transaction], commit=False)
        except TidelogError as error:
            _log.warning("%s stays open: %s", transaction.transactional_id, error)


def _end_request(transaction: OpenTransaction, commit: bool) -> EndTxnRequest:
    return EndTxnRequest(
        transactional_id=transaction.transactional_id,
        producer_id=transaction.producer_id,
        producer_epoch=transaction.producer_epoch,
        committed=commit,
    )


def _worst_partition_code(response: AddPartitionsToTxnResponse) -> int:
    codes = [
        row.partition_error_code
        for topic in response.results_by_topic_v3_and_below
        for row in topic.results_by_partition
    ]
    # Those that were not attempted for the sake of another say nothing themselves.
    told = [code for code in codes if code and code != ErrorCode.OPERATION_NOT_ATTEMPTED]
    return next(iter(told), next((code for code in codes if code), 0))


def _offset_code(response: TxnOffsetCommitResponse) -> int:
    return response.topics[0].partitions[0].error_code
