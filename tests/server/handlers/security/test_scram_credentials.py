"""SCRAM credentials: stored without the password, described without secrets."""

import hashlib
from collections.abc import Callable

import pytest

from tidelog.protocol.apis.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from tidelog.protocol.apis.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResult,
    UserName,
)
from tidelog.protocol.errors import ErrorCode
from tidelog.testing.wire import WireClient

NewName = Callable[[str], str]
SHA_256, SHA_512 = 1, 2


def upsertion(
    user: str, mechanism: int = SHA_256, iterations: int = 4096
) -> ScramCredentialUpsertion:
    return ScramCredentialUpsertion(
        name=user,
        mechanism=mechanism,
        iterations=iterations,
        salt=b"salt",
        salted_password=hashlib.pbkdf2_hmac("sha256", b"secret", b"salt", 10),
    )


def describe(wire: WireClient, *users: str) -> list[DescribeUserScramCredentialsResult]:
    response = wire.call(
        DescribeUserScramCredentialsRequest(users=[UserName(name=user) for user in users] or None),
        0,
    )
    assert response.error_code == 0
    results: list[DescribeUserScramCredentialsResult] = response.results
    return results


def alter(
    wire: WireClient,
    *upsertions: ScramCredentialUpsertion,
    deletions: list[ScramCredentialDeletion] | None = None,
) -> dict[str, int]:
    request = AlterUserScramCredentialsRequest(
        deletions=deletions or [], upsertions=list(upsertions)
    )
    return {row.user: row.error_code for row in wire.call(request, 0).results}


def test_credentials_are_set_described_and_deleted(wire: WireClient, new_name: NewName) -> None:
    user = new_name("user")
    assert alter(wire, upsertion(user, SHA_256, 4096)) == {user: 0}
    assert alter(wire, upsertion(user, SHA_512, 8192)) == {user: 0}
    (row,) = describe(wire, user)
    infos = [(info.mechanism, info.iterations) for info in row.credential_infos]
    assert infos == [(SHA_256, 4096), (SHA_512, 8192)]
    assert user in [each.user for each in describe(wire)]
    deletions = [ScramCredentialDeletion(name=user, mechanism=SHA_256)]
    assert alter(wire, deletions=deletions) == {user: 0}
    assert alter(wire, deletions=deletions) == {user: ErrorCode.RESOURCE_NOT_FOUND}
    (row,) = describe(wire, user)
    assert [info.mechanism for info in row.credential_infos] == [SHA_512]


def test_unknown_and_repeated_users_have_error_rows(wire: WireClient, new_name: NewName) -> None:
    unknown, twice = new_name("unknown"), new_name("twice")
    assert alter(wire, upsertion(twice)) == {twice: 0}
    rows = {row.user: row.error_code for row in describe(wire, unknown, twice, twice)}
    assert rows == {
        unknown: ErrorCode.RESOURCE_NOT_FOUND,
        twice: ErrorCode.DUPLICATE_RESOURCE,
    }


@pytest.mark.parametrize(
    ("name", "mechanism", "iterations", "expected"),
    [
        ("", SHA_256, 4096, ErrorCode.UNACCEPTABLE_CREDENTIAL),
        ("user", 7, 4096, ErrorCode.UNSUPPORTED_SASL_MECHANISM),
        ("user", SHA_256, 4095, ErrorCode.UNACCEPTABLE_CREDENTIAL),
        ("user", SHA_256, 16385, ErrorCode.UNACCEPTABLE_CREDENTIAL),
    ],
)
def test_unacceptable_credentials_are_refused(
    wire: WireClient, name: str, mechanism: int, iterations: int, expected: ErrorCode
) -> None:
    assert alter(wire, upsertion(name, mechanism, iterations)) == {name: expected}


def test_a_user_cannot_be_altered_twice_at_once(wire: WireClient, new_name: NewName) -> None:
    user = new_name("user")
    answered = alter(wire, upsertion(user, SHA_256), upsertion(user, SHA_512))
    assert answered == {user: ErrorCode.DUPLICATE_RESOURCE}
    assert describe(wire, user)[0].error_code == ErrorCode.RESOURCE_NOT_FOUND
