"""Client quotas: how long a client has to wait so that its rate stays below its quota.

Quotas on bytes and time never refuse work. What a client did is counted in a sliding rate (eleven
windows of one second unless told otherwise, as Kafka does); when the rate is above the quota the
answer says how long the client has to stay away until the same amount spread over the longer time
is within it, and the connection is not read from for that long.

Two quotas refuse what is above them: connections of an address (kept waiting, then closed) and
changes of topics (an error that tells when to come again).

Which quota binds a client is found by its user and client id, the most specific first:

    user and client id, user and any client id, user,
    any user and client id, any user and any client id, any user,
    client id, any client id

Clients bound by the same entity share one rate when the entity leaves a part open: a quota of a
user is for all of its client ids together, one of "any user" is for each user of its own. For
connections the address counts, or any address; a host's name is not looked up.
"""

from __future__ import annotations

from collections.abc import Mapping
from ipaddress import ip_address

from tidelog.security.token_bucket import TokenBucket
from tidelog.windowed_rate import WindowedRate, throttle_time_ms

QuotaEntity = tuple[tuple[str, str | None], ...]
"""The parts of an entity in order of their types; None as a name is the default of that type."""

USER = "user"
CLIENT_ID = "client-id"
IP = "ip"

PRODUCER_BYTE_RATE = "producer_byte_rate"
CONSUMER_BYTE_RATE = "consumer_byte_rate"
REQUEST_PERCENTAGE = "request_percentage"
CONTROLLER_MUTATION_RATE = "controller_mutation_rate"
CONNECTION_CREATION_RATE = "connection_creation_rate"

_NANOSECONDS_PER_PERCENT_SECOND = 10_000_000
_RATES_MAX = 10_000
_IPV4_IN_IPV6 = "::ffff:"  # how a socket for both families names a peer of the older one


def entity_candidates(user: str, client_id: str) -> tuple[QuotaEntity, ...]:
    """The entities whose quota may bind a client, the most specific first."""
    return (
        ((CLIENT_ID, client_id), (USER, user)),
        ((CLIENT_ID, None), (USER, user)),
        ((USER, user),),
        ((CLIENT_ID, client_id), (USER, None)),
        ((CLIENT_ID, None), (USER, None)),
        ((USER, None),),
        ((CLIENT_ID, client_id),),
        ((CLIENT_ID, None),),
    )


def _plain(part: tuple[str, str | None]) -> tuple[str, str | None]:
    """A part of an entity, with an address in the form in which sockets tell it."""
    kind, name = part
    if kind == IP and name is not None:
        try:
            return kind, str(ip_address(name))
        except ValueError:
            pass  # the name of a host
    return part


_Bucket = tuple[str, str, str]


class ClientQuotas:
    """The quotas of the cluster and the rates of the clients of this node.

    Without any quota set every call returns 0 at once. No I/O, no clock of its own.
    """

    def __init__(
        self, *, window_count: int = 11, window_ms: int = 1000, mutation_span_ms: int = 11_000
    ):
        """`mutation_span_ms` is the time over which changes of topics may be saved up."""
        self._window_count = window_count
        self._window_ms = window_ms
        self._mutation_span_ms = mutation_span_ms
        self._quotas: dict[QuotaEntity, dict[str, float]] = {}
        self._rates: dict[_Bucket, WindowedRate] = {}
        self._mutations: dict[_Bucket, tuple[float, TokenBucket]] = {}
        self._bounds: dict[_Bucket, tuple[float, _Bucket] | None] = {}
        self.limits_clients = False
        """Whether any quota is on a user or client id."""
        self.limits_connections = False
        """Whether any quota is on an address."""

    def replace(self, quotas: Mapping[QuotaEntity, Mapping[str, float]]) -> None:
        """Take over the quotas of a new metadata image; what clients have used stays counted."""
        self._quotas = {
            tuple(sorted(map(_plain, entity), key=lambda part: part[0])): dict(values)
            for entity, values in quotas.items()
        }
        self._bounds.clear()
        self.limits_connections = any(entity[0][0] == IP for entity in self._quotas)
        self.limits_clients = any(entity[0][0] != IP for entity in self._quotas)

    def record_produce(self, user: str, client_id: str | None, size_bytes: int, now_ms: int) -> int:
        """Count what a client produced; returns how long it is to be throttled, in ms."""
        return self._record(PRODUCER_BYTE_RATE, user, client_id, size_bytes, now_ms)

    def record_fetch(self, user: str, client_id: str | None, size_bytes: int, now_ms: int) -> int:
        """Count what a client is about to be sent; returns its throttle time in ms.

        A fetch that is throttled is answered without records, so its size is to be taken back
        with `unrecord_fetch`: otherwise a client pays for what it never got.
        """
        return self._record(CONSUMER_BYTE_RATE, user, client_id, size_bytes, now_ms)

    def unrecord_fetch(
        self, user: str, client_id: str | None, size_bytes: int, now_ms: int
    ) -> None:
        self._record(CONSUMER_BYTE_RATE, user, client_id, -size_bytes, now_ms)

    def record_request(self, user: str, client_id: str | None, busy_ns: int, now_ms: int) -> int:
        """Count the time the node worked for a client; returns its throttle time in ms.

        The quota is a percentage of one core; a throttle time is never longer than one window.
        """
        percent_seconds = busy_ns / _NANOSECONDS_PER_PERCENT_SECOND
        throttle_ms = self._record(REQUEST_PERCENTAGE, user, client_id, percent_seconds, now_ms)
        return min(throttle_ms, self._window_ms)

    def record_mutations(
        self,
        user: str,
        client_id: str | None,
        partition_count: int,
        now_ms: int,
        *,
        refuses: bool,
    ) -> int:
        """Count partitions that a client makes or deletes; returns its throttle time in ms.

        A client that is above its quota is refused when it `refuses`: nothing is counted then.
        Otherwise the work is to be done, and the client waits after it.
        """
        if not self._quotas:
            return 0
        found = self._find(CONTROLLER_MUTATION_RATE, user, client_id or "")
        if found is None:
            return 0
        bucket = self._mutation_bucket(found[0], found[1], now_ms)
        if refuses and (wait_ms := bucket.wait_ms(now_ms)):
            return wait_ms
        bucket.take(partition_count, now_ms)
        return 0 if refuses else bucket.wait_ms(now_ms)

    def record_connection(self, host: str, now_ms: int) -> int:
        """Count a connection from an address; returns 0 if it may be served.

        Otherwise it is not counted and is to be closed after this many milliseconds, at most one
        window, so that a client which comes back at once does not do so in a tight loop.
        """
        host = host.removeprefix(_IPV4_IN_IPV6)
        for entity in (((IP, host),), ((IP, None),)):
            bound_per_second = self._quotas.get(entity, {}).get(CONNECTION_CREATION_RATE)
            if bound_per_second is not None:
                break
        else:
            return 0
        rate = self._rate((CONNECTION_CREATION_RATE, host, ""), now_ms)
        rate.record(1, now_ms)
        throttle_ms = throttle_time_ms(rate, bound_per_second, now_ms)
        if throttle_ms:
            rate.record(-1, now_ms)
        return min(throttle_ms, self._window_ms)

    def fetch_size_bytes_max(self, user: str, client_id: str | None) -> int | None:
        """The most one fetch may return: more would exceed the quota of all windows at once."""
        bound = self.bound(CONSUMER_BYTE_RATE, user, client_id)
        if bound is None:
            return None
        return int(bound * (self._window_count - 1) * self._window_ms / 1000)

    def bound(self, key: str, user: str, client_id: str | None) -> float | None:
        """The quota that binds a client, or None."""
        found = self._find(key, user, client_id or "")
        return found[0] if found is not None else None

    def _record(
        self, key: str, user: str, client_id: str | None, amount: float, now_ms: int
    ) -> int:
        if not self._quotas:
            return 0
        found = self._find(key, user, client_id or "")
        if found is None:
            return 0
        bound_per_second, bucket = found
        rate = self._rate(bucket, now_ms)
        rate.record(amount, now_ms)
        return throttle_time_ms(rate, bound_per_second, now_ms)

    def _rate(self, bucket: _Bucket, now_ms: int) -> WindowedRate:
        rate = self._rates.get(bucket)
        if rate is None:
            if len(self._rates) >= _RATES_MAX:
                self._forget_idle(now_ms)
            rate = self._rates[bucket] = WindowedRate(self._window_count, self._window_ms)
        return rate

    def _mutation_bucket(self, per_second: float, bucket: _Bucket, now_ms: int) -> TokenBucket:
        """The tokens of a client; unused, they add up to what all windows together allow."""
        burst = per_second * self._mutation_span_ms / 1000
        known = self._mutations.get(bucket)
        if known is None:
            if len(self._mutations) >= _RATES_MAX:
                self._mutations = {
                    other: entry
                    for other, entry in self._mutations.items()
                    if not entry[1].is_full(now_ms)
                }
            tokens = TokenBucket(per_second, burst, now_ms)
        else:
            known_per_second, tokens = known
            if known_per_second == per_second:
                return tokens
            tokens.set_rate(per_second, burst, now_ms)
        self._mutations[bucket] = (per_second, tokens)
        return tokens

    def _find(self, key: str, user: str, client_id: str) -> tuple[float, _Bucket] | None:
        asked = (key, user, client_id)
        try:
            return self._bounds[asked]
        except KeyError:
            pass
        found: tuple[float, _Bucket] | None = None
        for entity in entity_candidates(user, client_id):
            bound_per_second = self._quotas.get(entity, {}).get(key)
            if bound_per_second is not None:
                types = {part[0] for part in entity}
                shared_by = (
                    user if USER in types else "",
                    client_id if CLIENT_ID in types else "",
                )
                found = (bound_per_second, (key, *shared_by))
                break
        if len(self._bounds) >= _RATES_MAX:
            self._bounds.clear()
        self._bounds[asked] = found
        return found

    def _forget_idle(self, now_ms: int) -> None:
        """Drop rates that are zero: nothing is lost, and memory stays bounded."""
        for bucket in [bucket for bucket, rate in self._rates.items() if rate.is_idle(now_ms)]:
            del self._rates[bucket]
