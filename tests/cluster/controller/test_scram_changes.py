import hashlib
import hmac

import pytest

from tests.cluster.cluster_host import ClusterHost
from tidelog.cluster.controller.scram_changes import (
    ScramDeletion,
    ScramUpsertion,
    alter_user_scram_credentials,
)


def upsertion(name: str = "alice", mechanism: int = 1, iterations: int = 4096) -> ScramUpsertion:
    salted = hashlib.pbkdf2_hmac("sha256", b"secret", b"salt", iterations)
    return ScramUpsertion(name, mechanism, iterations, b"salt", salted)


def alter(
    host: ClusterHost,
    *changes: ScramDeletion | ScramUpsertion,
) -> list[tuple[str, str]]:
    rows = host.decide(
        alter_user_scram_credentials(
            [each for each in changes if isinstance(each, ScramDeletion)],
            [each for each in changes if isinstance(each, ScramUpsertion)],
            host.image,
        )
    )
    return [(row.user, "ok" if row.error is None else row.error.code.name) for row in rows]


def test_what_is_kept_checks_a_login_and_is_not_the_password() -> None:
    host = ClusterHost()
    change = upsertion()
    assert alter(host, change) == [("alice", "ok")]
    credential = host.image.scram["alice", 1]
    client_key = hmac.new(change.salted_password, b"Client Key", "sha256").digest()
    assert credential.stored_key == hashlib.sha256(client_key).digest()
    assert credential.server_key == hmac.digest(change.salted_password, b"Server Key", "sha256")
    assert (credential.salt, credential.iterations) == (b"salt", 4096)
    assert "salt" not in repr(credential)


def test_credentials_go_again() -> None:
    host = ClusterHost()
    alter(host, upsertion())
    assert alter(host, ScramDeletion("alice", 1)) == [("alice", "ok")]
    assert not host.image.scram
    assert alter(host, ScramDeletion("alice", 1)) == [("alice", "RESOURCE_NOT_FOUND")]


@pytest.mark.parametrize(("metadata_version", "code"), [(10, "UNSUPPORTED_VERSION"), (11, "ok")])
def test_credentials_need_a_metadata_version_that_knows_them(
    metadata_version: int, code: str
) -> None:
    host = ClusterHost(metadata_version=metadata_version)
    assert alter(host, upsertion()) == [("alice", code)]
    if code != "ok":
        assert alter(host, ScramDeletion("alice", 1)) == [("alice", code)]


@pytest.mark.parametrize(
    ("change", "code"),
    [
        (upsertion(name=""), "UNACCEPTABLE_CREDENTIAL"),
        (upsertion(mechanism=3), "UNSUPPORTED_SASL_MECHANISM"),
        (upsertion(iterations=4095), "UNACCEPTABLE_CREDENTIAL"),
        (upsertion(iterations=16385), "UNACCEPTABLE_CREDENTIAL"),
    ],
)
def test_a_credential_that_cannot_be_is_refused(change: ScramUpsertion, code: str) -> None:
    assert alter(ClusterHost(), change) == [(change.name, code)]


def test_a_user_is_altered_once_in_a_request() -> None:
    host = ClusterHost()
    assert alter(host, ScramDeletion("alice", 1), upsertion(), upsertion("bob")) == [
        ("alice", "DUPLICATE_RESOURCE"),
        ("bob", "ok"),
    ]
    assert set(host.image.scram) == {("bob", 1)}
