"""The heartbeats of one member in one generation of a classic group, from a thread of their own.

So the member stays in the group while its program is busy, or waits for whoever reads its output.
"""

import threading
import time

from tidelog.client.cluster.client import ClusterClient
from tidelog.client.cluster.cluster import COORDINATOR_GROUP, Cluster
from tidelog.client.errors import ClientError
from tidelog.protocol.apis.heartbeat import HeartbeatRequest, HeartbeatResponse
from tidelog.protocol.errors import ErrorCode


class Heartbeats:
    """Sends heartbeats until stopped, until one is refused, or until the program seems stuck.

    `cluster` becomes the thread's own. A program that has not called `touch` for
    `poll_interval_max_s` is stuck: its partitions are for others then.
    """

    def __init__(
        self,
        cluster: Cluster,
        request: HeartbeatRequest,
        *,
        interval_s: float,
        poll_interval_max_s: float,
    ) -> None:
        self._cluster = cluster
        self._request = request
        self._interval_s = interval_s
        self._poll_interval_max_s = poll_interval_max_s
        self._touched_s = time.monotonic()
        self._stopped = threading.Event()
        self._refusal: ErrorCode | None = None
        threading.Thread(target=self._run, name="heartbeats", daemon=True).start()

    @property
    def refusal(self) -> ErrorCode | None:
        """Why the generation is over for this member, or None."""
        return self._refusal

    def touch(self) -> None:
        """The program is at work."""
        self._touched_s = time.monotonic()

    def stop(self) -> None:
        """Send no more; one that is under way is not waited for."""
        self._stopped.set()

    def _run(self) -> None:
        with self._cluster as cluster:
            client = ClusterClient(cluster, self._interval_s)
            while not self._stopped.wait(self._interval_s):
                if time.monotonic() - self._touched_s > self._poll_interval_max_s:
                    self._refusal = ErrorCode.REBALANCE_IN_PROGRESS
                    return
                try:
                    answer = client.ask_coordinator(
                        COORDINATOR_GROUP,
                        self._request.group_id,
                        self._request,
                        HeartbeatResponse,
                        lambda response: response.error_code,
                    )
                except ClientError:
                    # The coordinator is away: once it is back, a heartbeat tells what became of
                    # the membership.
                    continue
                if answer.error_code:
                    self._refusal = ErrorCode(answer.error_code)
                    return
