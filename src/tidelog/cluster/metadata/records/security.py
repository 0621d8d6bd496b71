"""Metadata records of security: SCRAM credentials, access control entries, delegation tokens."""

from __future__ import annotations

from tidelog.protocol.schema import BYTES, INT8, INT32, INT64, STRING, UUID, Array, Message, field


class UserScramCredentialRecord(Message, api_key=11, versions="0", flexible="0+"):
    name: str = field(STRING, "0+")
    mechanism: int = field(INT8, "0+")
    salt: bytes = field(BYTES, "0+")
    stored_key: bytes = field(BYTES, "0+")
    server_key: bytes = field(BYTES, "0+")
    iterations: int = field(INT32, "0+")


class RemoveUserScramCredentialRecord(Message, api_key=22, versions="0", flexible="0+"):
    name: str = field(STRING, "0+")
    mechanism: int = field(INT8, "0+")


class AccessControlEntryRecord(Message, api_key=18, versions="0", flexible="0+"):
    id: bytes = field(UUID, "0+")
    resource_type: int = field(INT8, "0+")
    resource_name: str = field(STRING, "0+")
    pattern_type: int = field(INT8, "0+")
    principal: str = field(STRING, "0+")
    host: str = field(STRING, "0+")
    operation: int = field(INT8, "0+")
    permission_type: int = field(INT8, "0+")


class RemoveAccessControlEntryRecord(Message, api_key=19, versions="0", flexible="0+"):
    id: bytes = field(UUID, "0+")


class DelegationTokenRecord(Message, api_key=10, versions="0", flexible="0+"):
    owner: str = field(STRING, "0+")
    requester: str = field(STRING, "0+")
    renewers: list[str] = field(Array(STRING), "0+")
    issue_timestamp: int = field(INT64, "0+")
    max_timestamp: int = field(INT64, "0+")
    expiration_timestamp: int = field(INT64, "0+")
    token_id: str = field(STRING, "0+")


class RemoveDelegationTokenRecord(Message, api_key=26, versions="0", flexible="0+"):
    token_id: str = field(STRING, "0+")
