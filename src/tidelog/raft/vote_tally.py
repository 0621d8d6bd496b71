"""The votes of one election, or of the question whether to begin one."""

from __future__ import annotations

from tidelog.raft.voters import ReplicaKey, VoterNode, VoterSet


class VoteTally:
    """Who of the voters has granted and who has refused."""

    __slots__ = ("_voters", "granted", "refused")

    def __init__(self, voters: VoterSet, own: ReplicaKey) -> None:
        self._voters = voters
        self.granted = {own.id} if voters.is_voter(own) else set()
        self.refused: set[int] = set()

    def record(self, voter_id: int, *, is_granted: bool) -> None:
        """A voter may change its mind about a pre-vote, and then the last word counts."""
        if self._voters.get(voter_id) is None:
            return
        (self.granted if is_granted else self.refused).add(voter_id)
        (self.refused if is_granted else self.granted).discard(voter_id)

    @property
    def is_won(self) -> bool:
        return len(self.granted) >= self._voters.majority

    @property
    def is_lost(self) -> bool:
        return len(self._voters) - len(self.refused) < self._voters.majority

    @property
    def outstanding(self) -> list[VoterNode]:
        """Those who have not answered."""
        return [
            node
            for node in self._voters
            if node.key.id not in self.granted and node.key.id not in self.refused
        ]
