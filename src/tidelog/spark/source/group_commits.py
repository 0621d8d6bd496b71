"""A consumer group that shows how far a query has read, to every tool that can show a group's lag.

The query never reads from it: Spark's checkpoint alone says where a query goes on. Offsets are
committed without being a member of the group, so the group must have none.

Two places commit. The stream reader does when Spark asks it for the next offsets: then what came
before is in the checkpoint. That is at once with the default trigger and with AvailableNow, and
with a trigger of ten minutes it is ten minutes later; so a listener on the driver commits when it
hears that a micro-batch is complete. `tidelog.spark.session()` adds it.
"""

import logging
import time

from tidelog.client.cluster import COORDINATOR_GROUP, ClusterClient, Stale, worst_code
from tidelog.client.errors import BrokerError, RetriesExhausted
from tidelog.protocol.apis.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from tidelog.protocol.errors import ErrorCode
from tidelog.spark.connections import lent_cluster
from tidelog.spark.errors import OptionError
from tidelog.spark.offsets import Offsets
from tidelog.spark.source.options import SourceOptions

_log = logging.getLogger(__name__)

# The newest version that names topics; the next one wants their ids.
_NAMES_UP_TO = 9
# How long a commit is tried: the first one, and those that must not hold up a running query.
_FIRST_PATIENCE_S = 10.0
_PATIENCE_S = 2.0
# A group that refused is left alone for so long.
_REST_S = 30.0
# Brokers forget offsets that are not committed again, of a group without members after a week.
_REFRESH_S = 300.0

# A topic that was deleted meanwhile has no offsets to keep.
_HARMLESS = frozenset({ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION})
_GROUP_IS_USED = frozenset(
    {ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION, ErrorCode.REBALANCE_IN_PROGRESS}
)


class GroupCommits:
    """Brings the offsets of one group to where a query is."""

    def __init__(self, bootstrap: str, client_id: str, group_id: str, timeout_s: float) -> None:
        self._bootstrap = bootstrap
        self._client_id = client_id
        self._group_id = group_id
        self._timeout_s = timeout_s
        self._done: Offsets | None = None
        self._done_s = 0.0
        self._rests_until_s = 0.0

    @classmethod
    def of(cls, options: SourceOptions) -> "GroupCommits | None":
        """For the option groupId; None without it."""
        if options.group_id is None:
            return None
        return cls(
            options.bootstrap, options.client_id, options.group_id, options.request_timeout_s
        )

    def bring_to(self, offsets: Offsets) -> None:
        """Commit, unless that was done a moment ago.

        A group that cannot be used is an OptionError at first. Once it has worked, trouble with it
        is logged and a later commit makes up for it: the query does not depend on it.
        """
        now_s = time.monotonic()
        is_done = offsets == self._done and now_s < self._done_s + _REFRESH_S
        if not offsets or is_done or now_s < self._rests_until_s:
            return
        timeout_s = _FIRST_PATIENCE_S if self._done is None else _PATIENCE_S
        try:
            refused = self._commit(offsets, timeout_s)
            trouble = ", ".join(sorted(each.name for each in refused))
        except BrokerError as error:
            refused, trouble = {error.code}, str(error)
        except RetriesExhausted as error:
            self._rest(str(error))
            return
        if not refused:
            self._done, self._done_s = dict(offsets), time.monotonic()
        elif self._done is None:
            reason = "it has members" if refused <= _GROUP_IS_USED else trouble
            raise OptionError(
                f"option groupId={self._group_id!r}: offsets cannot be committed: {reason}"
            )
        else:
            self._rest(trouble)

    def _rest(self, trouble: str) -> None:
        _log.warning("offsets of group %s are not committed: %s", self._group_id, trouble)
        self._rests_until_s = time.monotonic() + _REST_S

    def _commit(self, offsets: Offsets, timeout_s: float) -> set[ErrorCode]:
        """The errors with which the coordinator refused."""
        topics: dict[str, list[OffsetCommitRequestPartition]] = {}
        for name, offset in offsets.items():
            row = OffsetCommitRequestPartition(
                partition_index=name.partition, committed_offset=offset, committed_metadata=""
            )
            topics.setdefault(name.topic, []).append(row)
        request = OffsetCommitRequest(
            group_id=self._group_id,
            topics=[
                OffsetCommitRequestTopic(name=topic, partitions=rows)
                for topic, rows in topics.items()
            ],
        )
        with lent_cluster(self._bootstrap, self._client_id, self._timeout_s) as pooled:
            response = ClusterClient(pooled.cluster, timeout_s).ask_coordinator(
                COORDINATOR_GROUP,
                self._group_id,
                request,
                OffsetCommitResponse,
                lambda response: worst_code(_refusals(response), Stale.COORDINATOR),
                version_max=_NAMES_UP_TO,
            )
        return _refusals(response)


def _refusals(response: OffsetCommitResponse) -> set[ErrorCode]:
    codes = {ErrorCode(row.error_code) for topic in response.topics for row in topic.partitions}
    return codes - _HARMLESS
