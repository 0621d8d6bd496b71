"""DescribeUserScramCredentials (key 50): which SCRAM mechanisms users have, never their secrets."""

from tidelog.protocol.schema import INT8, INT16, INT32, STRING, Array, Message, Struct, field


class UserName(Struct):
    name: str = field(STRING, "0+")


class DescribeUserScramCredentialsRequest(Message, api_key=50, versions="0", flexible="0+"):
    users: list[UserName] | None = field(Array(UserName), "0+", nullable="0+")


class CredentialInfo(Struct):
    mechanism: int = field(INT8, "0+")
    iterations: int = field(INT32, "0+")


class DescribeUserScramCredentialsResult(Struct):
    user: str = field(STRING, "0+")
    error_code: int = field(INT16, "0+")
    error_message: str | None = field(STRING, "0+", nullable="0+", default=None)
    credential_infos: list[CredentialInfo] = field(Array(CredentialInfo), "0+")


class DescribeUserScramCredentialsResponse(Message, api_key=50, versions="0", flexible="0+"):
    throttle_time_ms: int = field(INT32, "0+")
    error_code: int = field(INT16, "0+")
    error_message: str | None = field(STRING, "0+", nullable="0+", default=None)
    results: list[DescribeUserScramCredentialsResult] = field(
        Array(DescribeUserScramCredentialsResult), "0+"
    )
