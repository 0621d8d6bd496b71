"""What one request may change in the cluster's metadata (KIP-599).

Clients that know the error THROTTLING_QUOTA_EXCEEDED get it, topic by topic, while they are above
their quota, and try again later. For older ones the work is done and they wait afterwards. Both
learn from the answer for how long, and are not read from meanwhile.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.protocol.errors import ApiError, ErrorCode

if TYPE_CHECKING:
    from tidelog.server.node import Node
    from tidelog.server.request import Request


class MutationQuota:
    """The quota controller_mutation_rate, for one request."""

    def __init__(self, node: Node, request: Request, *, refuses_from: int) -> None:
        """Requests of version `refuses_from` on know the error."""
        self._quotas = node.quotas
        self._request = request
        self._refuses = request.version >= refuses_from
        self._throttle_ms = 0

    def charge(self, partition_count: int) -> None:
        """Count partitions that are about to come or go; ApiError when they must not."""
        request = self._request
        throttle_ms = self._quotas.record_mutations(
            request.connection.principal,
            request.client_id,
            partition_count,
            request.received_ms,
            refuses=self._refuses,
        )
        if throttle_ms:
            self._throttle_ms = max(self._throttle_ms, throttle_ms)
            if self._refuses:
                raise ApiError(
                    ErrorCode.THROTTLING_QUOTA_EXCEEDED,
                    "The quota controller_mutation_rate is exceeded; "
                    f"try again in {throttle_ms} ms.",
                )

    def throttle(self) -> int:
        """Hold the client off after all was charged; returns the throttle time for the answer."""
        if self._throttle_ms:
            self._request.connection.throttle(self._throttle_ms)
        return self._throttle_ms
