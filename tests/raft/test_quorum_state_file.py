"""quorum-state in Kafka's format, both versions."""

import json

import pytest

from tidelog.protocol.uuids import ZERO_UUID
from tidelog.raft.quorum_state_file import (
    ElectionState,
    QuorumStateError,
    decode_quorum_state,
    encode_quorum_state,
)
from tidelog.raft.voters import ReplicaKey

DIRECTORY = bytes(range(16))


@pytest.mark.parametrize(
    "state",
    [
        ElectionState(0),
        ElectionState(3, leader_id=2),
        ElectionState(4, voted=ReplicaKey(1, DIRECTORY)),
        ElectionState(5, leader_id=1, voted=ReplicaKey(1, DIRECTORY)),
    ],
)
def test_state_survives_with_directories_from_kraft_version_1_on(state: ElectionState) -> None:
    assert decode_quorum_state(encode_quorum_state(state, 1, (1, 2))) == state
    voted = None if state.voted is None else ReplicaKey(state.voted.id, ZERO_UUID)
    assert decode_quorum_state(encode_quorum_state(state, 0, (1, 2))) == state._replace(voted=voted)


def test_files_have_the_fields_of_kafka() -> None:
    state = ElectionState(4, voted=ReplicaKey(1, DIRECTORY))
    assert json.loads(encode_quorum_state(state, 1, (1, 2))) == {
        "leaderId": -1,
        "leaderEpoch": 4,
        "votedId": 1,
        "votedDirectoryId": "AAECAwQFBgcICQoLDA0ODw",
        "data_version": 1,
    }
    assert json.loads(encode_quorum_state(state, 0, (1, 2))) == {
        "clusterId": "",
        "leaderId": -1,
        "leaderEpoch": 4,
        "votedId": 1,
        "appliedOffset": 0,
        "currentVoters": [{"voterId": 1}, {"voterId": 2}],
        "data_version": 0,
    }


@pytest.mark.parametrize(
    "content",
    [b"", b"{}", b"[]", b"\xff", b'{"data_version":2}', b'{"data_version":1,"leaderEpoch":"1"}'],
)
def test_damaged_files_are_refused(content: bytes) -> None:
    with pytest.raises(QuorumStateError):
        decode_quorum_state(content)
