import pytest

from tidelog.cluster.metadata.image_changes import MetadataReplayError
from tidelog.cluster.metadata.metadata_transactions import MetadataTransactions
from tidelog.cluster.metadata.records.log_control import (
    AbortTransactionRecord,
    BeginTransactionRecord,
    EndTransactionRecord,
)
from tidelog.cluster.metadata.records.settings import ProducerIdsRecord
from tidelog.protocol.schema import Message


def record(number: int) -> Message:
    return ProducerIdsRecord(next_producer_id=number)


def test_records_count_when_their_transaction_ends() -> None:
    transactions = MetadataTransactions()
    log = [
        record(1),
        BeginTransactionRecord(),
        record(2),
        record(3),
        EndTransactionRecord(),
        BeginTransactionRecord(),
        record(4),
        AbortTransactionRecord(),
        record(5),
        BeginTransactionRecord(),
        record(6),
    ]
    counted = [list(transactions.take(each, offset)) for offset, each in enumerate(log)]
    nothing: list[Message] = []
    assert counted == [
        [record(1)], nothing, nothing, nothing, [record(2), record(3)],
        nothing, nothing, nothing, [record(5)], nothing, nothing,
    ]  # fmt: skip
    assert transactions.begin_offset == 9


@pytest.mark.parametrize(
    ("log", "reason"),
    [
        ([BeginTransactionRecord(), BeginTransactionRecord()], "offset 1, inside .* offset 0"),
        ([EndTransactionRecord()], "ends at offset 0, and none has begun"),
        ([AbortTransactionRecord()], "ends at offset 0, and none has begun"),
    ],
)
def test_a_log_whose_transactions_do_not_match_is_refused(log: list[Message], reason: str) -> None:
    transactions = MetadataTransactions()
    with pytest.raises(MetadataReplayError, match=reason):
        for offset, each in enumerate(log):
            transactions.take(each, offset)
