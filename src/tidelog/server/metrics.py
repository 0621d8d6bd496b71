"""What the node counts: plain attributes on the hot path, read by whoever exports them.

An increment of an attribute costs 50 ns; names, labels and help texts are put to the numbers only
in `snapshot`.
"""

from __future__ import annotations

from typing import NamedTuple

from tidelog.protocol.api_keys import ApiKey

_API_KEYS_MAX = 128


class Sample(NamedTuple):
    """One number with its name in Prometheus' style."""

    name: str
    kind: str
    help: str
    labels: dict[str, str]
    value: float


class Metrics:
    """Counters and gauges of one node. Only the loop thread writes them."""

    __slots__ = (
        "bytes_passed_as_files",
        "bytes_received",
        "bytes_sent",
        "bytes_sent_from_files",
        "connections_accepted",
        "connections_closed",
        "connections_open",
        "connections_refused",
        "delayed_fetches",
        "delayed_produces",
        "fetch_bytes",
        "fetch_requests",
        "fetch_sessions",
        "fetch_sessions_evicted",
        "handler_failures",
        "in_flight_bytes",
        "malformed_frames",
        "produce_batches_bytes",
        "produce_errors",
        "produce_partitions",
        "requests",
        "requests_in_flight",
        "throttled_ms",
        "unsupported_requests",
    )

    def __init__(self) -> None:
        for name in self.__slots__:
            setattr(self, name, 0)
        self.requests = [0] * _API_KEYS_MAX
        """Requests served, by API key."""

    bytes_passed_as_files: int
    bytes_received: int
    bytes_sent: int
    bytes_sent_from_files: int
    connections_accepted: int
    connections_closed: int
    connections_open: int
    connections_refused: int
    delayed_fetches: int
    delayed_produces: int
    fetch_bytes: int
    fetch_requests: int
    fetch_sessions: int
    fetch_sessions_evicted: int
    handler_failures: int
    in_flight_bytes: int
    malformed_frames: int
    produce_batches_bytes: int
    produce_errors: int
    produce_partitions: int
    requests_in_flight: int
    throttled_ms: int
    unsupported_requests: int

    def snapshot(self) -> list[Sample]:
        """All numbers as of now, ready for an exporter."""
        samples = [
            Sample(f"tidelog_{name}", kind, text, {}, float(getattr(self, name)))
            for name, kind, text in _DESCRIPTIONS
        ]
        samples += [
            Sample(
                "tidelog_requests_total",
                "counter",
                "Requests served, by API.",
                {"api": _api_name(key)},
                float(count),
            )
            for key, count in enumerate(self.requests)
            if count
        ]
        return samples


def _api_name(key: int) -> str:
    return ApiKey(key).name.lower()


_DESCRIPTIONS = (
    (
        "bytes_passed_as_files",
        "counter",
        "Bytes of fetch_bytes that readers on this machine take from the files themselves.",
    ),
    ("bytes_received", "counter", "Bytes read from clients."),
    ("bytes_sent", "counter", "Bytes written to clients."),
    ("bytes_sent_from_files", "counter", "Bytes of bytes_sent that went by sendfile."),
    ("connections_accepted", "counter", "Connections accepted."),
    ("connections_closed", "counter", "Connections ended, by either side."),
    ("connections_open", "gauge", "Connections open now."),
    ("connections_refused", "counter", "Connections refused by a limit."),
    ("delayed_fetches", "gauge", "Fetches that wait for records now."),
    ("delayed_produces", "gauge", "Produce requests that wait for durability or replicas now."),
    ("fetch_bytes", "counter", "Bytes of record batches handed to consumers."),
    ("fetch_requests", "counter", "Fetch requests answered."),
    ("fetch_sessions", "gauge", "Incremental fetch sessions open now."),
    ("fetch_sessions_evicted", "counter", "Fetch sessions dropped to make room."),
    ("handler_failures", "counter", "Requests that failed with an unexpected error."),
    ("in_flight_bytes", "gauge", "Bytes of requests received and not yet answered."),
    ("malformed_frames", "counter", "Frames that could not be decoded."),
    ("produce_batches_bytes", "counter", "Bytes of record batches appended for producers."),
    ("produce_errors", "counter", "Partitions of produce requests answered with an error."),
    ("produce_partitions", "counter", "Partitions of produce requests."),
    ("requests_in_flight", "gauge", "Requests received and not yet answered."),
    ("throttled_ms", "counter", "Milliseconds that clients were told to wait by quotas."),
    ("unsupported_requests", "counter", "Requests of an API or version that is not served."),
)
