"""RenewDelegationToken (key 39): a token lives longer."""

from tidelog.protocol.schema import BYTES, INT16, INT32, INT64, Message, field


class RenewDelegationTokenRequest(Message, api_key=39, versions="0-2", flexible="2+"):
    hmac: bytes = field(BYTES, "0+")
    renew_period_ms: int = field(INT64, "0+")


class RenewDelegationTokenResponse(Message, api_key=39, versions="0-2", flexible="2+"):
    error_code: int = field(INT16, "0+")
    expiry_timestamp_ms: int = field(INT64, "0+")
    throttle_time_ms: int = field(INT32, "0+")
