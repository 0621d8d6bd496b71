"""AlterUserScramCredentials (key 51): set or delete SCRAM credentials.

The client salts the password itself; the broker never sees it.
"""

from tidelog.protocol.schema import BYTES, INT8, INT16, INT32, STRING, Array, Message, Struct, field


class ScramCredentialDeletion(Struct):
    name: str = field(STRING, "0+")
    mechanism: int = field(INT8, "0+")


class ScramCredentialUpsertion(Struct):
    name: str = field(STRING, "0+")
    mechanism: int = field(INT8, "0+")
    iterations: int = field(INT32, "0+")
    salt: bytes = field(BYTES, "0+")
    salted_password: bytes = field(BYTES, "0+")


class AlterUserScramCredentialsRequest(Message, api_key=51, versions="0", flexible="0+"):
    deletions: list[ScramCredentialDeletion] = field(Array(ScramCredentialDeletion), "0+")
    upsertions: list[ScramCredentialUpsertion] = field(Array(ScramCredentialUpsertion), "0+")


class AlterUserScramCredentialsResult(Struct):
    user: str = field(STRING, "0+")
    error_code: int = field(INT16, "0+")
    error_message: str | None = field(STRING, "0+", nullable="0+", default=None)


class AlterUserScramCredentialsResponse(Message, api_key=51, versions="0", flexible="0+"):
    throttle_time_ms: int = field(INT32, "0+")
    results: list[AlterUserScramCredentialsResult] = field(
        Array(AlterUserScramCredentialsResult), "0+"
    )
