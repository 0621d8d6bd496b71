"""BrokerHeartbeat (key 63): a broker is alive, and says whether it serves or wants to stop.

`full_log_dirs` is Tidelog's own: a controller that does not know it leaves it aside.
"""

from tidelog.protocol.schema import (
    BOOL,
    INT16,
    INT32,
    INT64,
    OWN_TAGS_FROM,
    UUID,
    Array,
    Message,
    field,
)


class BrokerHeartbeatRequest(Message, api_key=63, versions="0-2", flexible="0+"):
    broker_id: int = field(INT32, "0+")
    broker_epoch: int = field(INT64, "0+", default=-1)
    current_metadata_offset: int = field(INT64, "0+")
    want_fence: bool = field(BOOL, "0+")
    want_shut_down: bool = field(BOOL, "0+")
    offline_log_dirs: list[bytes] = field(Array(UUID), "1+", tag=0, tagged="1+")
    cordoned_log_dirs: list[bytes] | None = field(
        Array(UUID), "2+", nullable="2+", default=None, tag=1, tagged="2+"
    )
    full_log_dirs: list[bytes] = field(Array(UUID), "1+", tag=OWN_TAGS_FROM, tagged="1+")


class BrokerHeartbeatResponse(Message, api_key=63, versions="0-2", flexible="0+"):
    throttle_time_ms: int = field(INT32, "0+")
    error_code: int = field(INT16, "0+")
    is_caught_up: bool = field(BOOL, "0+")
    is_fenced: bool = field(BOOL, "0+", default=True)
    should_shut_down: bool = field(BOOL, "0+")
