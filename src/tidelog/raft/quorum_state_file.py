"""The file `quorum-state`: the epoch a replica has reached, whom it voted for, who leads.

It has to be on disk before anybody hears of what it says; otherwise a voter that restarts could
vote twice in an epoch. The format is Kafka's, one JSON object: version 0 for clusters at
kraft.version 0, version 1, which knows directory ids, from kraft.version 1 on. Both are read.
"""

from __future__ import annotations

import json
from typing import NamedTuple

from tidelog.errors import TidelogError
from tidelog.protocol.uuids import ZERO_UUID, format_uuid, parse_uuid
from tidelog.raft.voters import RECONFIGURATION_VERSION, ReplicaKey

FILE_NAME = "quorum-state"
_NOBODY = -1


class QuorumStateError(TidelogError):
    """The file is not what a replica has written."""


class ElectionState(NamedTuple):
    """What a replica must not forget. `voted` is whom it gave its vote in `epoch`."""

    epoch: int
    leader_id: int | None = None
    voted: ReplicaKey | None = None


def encode_quorum_state(
    state: ElectionState, kraft_version: int, voter_ids: tuple[int, ...]
) -> bytes:
    leader_id = _NOBODY if state.leader_id is None else state.leader_id
    voted_id = _NOBODY if state.voted is None else state.voted.id
    content: dict[str, object]
    if kraft_version < RECONFIGURATION_VERSION:
        content = {
            "clusterId": "",
            "leaderId": leader_id,
            "leaderEpoch": state.epoch,
            "votedId": voted_id,
            "appliedOffset": 0,
            "currentVoters": [{"voterId": voter_id} for voter_id in voter_ids],
            "data_version": 0,
        }
    else:
        directory_id = ZERO_UUID if state.voted is None else state.voted.directory_id
        content = {
            "leaderId": leader_id,
            "leaderEpoch": state.epoch,
            "votedId": voted_id,
            "votedDirectoryId": format_uuid(directory_id),
            "data_version": 1,
        }
    return json.dumps(content, separators=(",", ":")).encode()


def decode_quorum_state(content: bytes) -> ElectionState:
    """Raises QuorumStateError."""
    try:
        fields = json.loads(content.decode().partition("\n")[0])
        version = fields["data_version"]
        if version not in (0, 1):
            raise QuorumStateError(f"the data_version {version!r} is unknown")
        epoch, leader_id, voted_id = (
            _integer(fields[name]) for name in ("leaderEpoch", "leaderId", "votedId")
        )
        directory_id = parse_uuid(fields["votedDirectoryId"]) if version else ZERO_UUID
    except (ValueError, KeyError, TypeError) as error:
        raise QuorumStateError(
            f"the file is damaged ({error!r}). If this node is the only voter of its quorum, delete"
            " the file; otherwise remove the node from the voters, empty its metadata directory and"
            " add it again, for it may have forgotten a vote"
        ) from error
    return ElectionState(
        max(epoch, 0),
        None if leader_id == _NOBODY else leader_id,
        None if voted_id == _NOBODY else ReplicaKey(voted_id, directory_id),
    )


def _integer(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise TypeError(f"{value!r} is not a number")
    return value
