"""Fetched record batches, decoded straight into Arrow."""

from tidelog.spark.decode.aborted import AbortedTransactions
from tidelog.spark.decode.batches import FetchedBatches
from tidelog.spark.decode.decoder import RangeDecoder

__all__ = ["AbortedTransactions", "FetchedBatches", "RangeDecoder"]
