"""SCRAM credentials of users.

Clients send the salted password; what is kept is what RFC 5802 needs to check a login and no more:
the stored key and the server key.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Sequence
from typing import NamedTuple

from tidelog.cluster.controller.decision import Decision
from tidelog.cluster.features import MV_SCRAM
from tidelog.cluster.metadata.image import MetadataImage
from tidelog.cluster.metadata.records.security import (
    RemoveUserScramCredentialRecord,
    UserScramCredentialRecord,
)
from tidelog.protocol.errors import ApiError, ErrorCode
from tidelog.protocol.schema import Message

# Kafka's numbers of the mechanisms, with their hash functions.
SCRAM_HASHES = {1: "sha256", 2: "sha512"}
ITERATIONS_MIN = 4096
ITERATIONS_MAX = 16384


class ScramDeletion(NamedTuple):
    name: str
    mechanism: int


class ScramUpsertion(NamedTuple):
    name: str
    mechanism: int
    iterations: int
    salt: bytes
    salted_password: bytes


class ScramRow(NamedTuple):
    user: str
    error: ApiError | None


def alter_user_scram_credentials(
    deletions: Sequence[ScramDeletion],
    upsertions: Sequence[ScramUpsertion],
    image: MetadataImage,
) -> Decision[list[ScramRow]]:
    """Sets and removes credentials; one row per user, and a user can be named once."""
    changes: list[ScramDeletion | ScramUpsertion] = [*deletions, *upsertions]
    users = [change.name for change in changes]
    records: list[Message] = []
    rows: dict[str, ScramRow] = {}
    for change in changes:
        if change.name in rows:
            continue
        try:
            if users.count(change.name) > 1:
                raise ApiError(
                    ErrorCode.DUPLICATE_RESOURCE,
                    "A user credential cannot be altered twice in the same request",
                )
            if image.metadata_version < MV_SCRAM:
                raise ApiError(
                    ErrorCode.UNSUPPORTED_VERSION,
                    "The current metadata.version does not support SCRAM",
                )
            records.append(_record(change, image))
        except ApiError as error:
            rows[change.name] = ScramRow(change.name, error)
        else:
            rows[change.name] = ScramRow(change.name, None)
    return Decision(records, list(rows.values()))


def _record(change: ScramDeletion | ScramUpsertion, image: MetadataImage) -> Message:
    if not change.name:
        raise ApiError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Username must not be empty")
    if change.mechanism not in SCRAM_HASHES:
        raise ApiError(ErrorCode.UNSUPPORTED_SASL_MECHANISM, "Unknown SCRAM mechanism")
    if isinstance(change, ScramDeletion):
        if (change.name, change.mechanism) not in image.scram:
            raise ApiError(
                ErrorCode.RESOURCE_NOT_FOUND,
                "Attempt to delete a user credential that does not exist",
            )
        return RemoveUserScramCredentialRecord(name=change.name, mechanism=change.mechanism)
    if change.iterations < ITERATIONS_MIN:
        raise ApiError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Too few iterations")
    if change.iterations > ITERATIONS_MAX:
        raise ApiError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Too many iterations")
    hash_name = SCRAM_HASHES[change.mechanism]
    client_key = hmac.digest(change.salted_password, b"Client Key", hash_name)
    return UserScramCredentialRecord(
        name=change.name,
        mechanism=change.mechanism,
        salt=change.salt,
        stored_key=hashlib.new(hash_name, client_key).digest(),
        server_key=hmac.digest(change.salted_password, b"Server Key", hash_name),
        iterations=change.iterations,
    )
