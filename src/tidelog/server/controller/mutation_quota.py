"""What one request may change in the cluster's metadata (KIP-599).

Clients that know the error THROTTLING_QUOTA_EXCEEDED get it, topic by topic, while they are above
their quota, and try again later. For older ones the work is done and they wait afterwards. Both
learn from the answer for how long, and are not read from meanwhile.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.protocol.errors import ApiError, ErrorCode
from tidelog.security.quotas import ClientQuotas

if TYPE_CHECKING:
    from tidelog.server.controller.request_context import RequestContext


class MutationQuota:
    """The quota controller_mutation_rate, for one request; `throttle_ms` is for its answer."""

    def __init__(
        self, quotas: ClientQuotas, context: RequestContext | None, *, refuses_from: int
    ) -> None:
        """Requests of version `refuses_from` on know the error. No quota binds the node itself,
        which asks without a context."""
        self._quotas = quotas
        self._context = context
        self._refuses = context is not None and context.version >= refuses_from
        self.throttle_ms = 0

    def charge(self, partition_count: int) -> None:
        """Count partitions that are about to come or go; ApiError when they must not."""
        context = self._context
        if context is None:
            return
        throttle_ms = self._quotas.record_mutations(
            context.principal,
            context.client_id,
            partition_count,
            context.received_ms,
            refuses=self._refuses,
        )
        if throttle_ms:
            self.throttle_ms = max(self.throttle_ms, throttle_ms)
            if self._refuses:
                raise ApiError(
                    ErrorCode.THROTTLING_QUOTA_EXCEEDED,
                    "The quota controller_mutation_rate is exceeded; "
                    f"try again in {throttle_ms} ms.",
                )
