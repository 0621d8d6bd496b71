"""SaslAuthenticate (key 36): one token of the SASL exchange each way."""

from tidelog.protocol.schema import BYTES, INT16, INT64, STRING, Message, field


class SaslAuthenticateRequest(Message, api_key=36, versions="0-2", flexible="2+"):
    auth_bytes: bytes = field(BYTES, "0+")


class SaslAuthenticateResponse(Message, api_key=36, versions="0-2", flexible="2+"):
    error_code: int = field(INT16, "0+")
    error_message: str | None = field(STRING, "0+", nullable="0+", default=None)
    auth_bytes: bytes = field(BYTES, "0+")
    session_lifetime_ms: int = field(INT64, "1+")
