"""What the sink calls its transactional ids and its groups.

    PREFIX:query:ID:task-3         a task's transactions and marker; ID is that of the checkpoint
    PREFIX:query:ID:decision       the decisions of the query (see `markers`)
    PREFIX:query:ID:decision-a-1   their pieces, if they are long
    PREFIX:job:APP:...             the same of batch jobs with txnAppId
    PREFIX:run:ID:task-3           a batch job without it

No two writers share a name, whatever the texts of prefix and application: read from the right, what
stands between two colons has none itself. In an application's id a colon is written %3A, and % %25.
"""

from dataclasses import dataclass
from enum import Enum


class WriterKind(Enum):
    """Who writes; the value is what its names say."""

    QUERY = "query"
    JOB = "job"
    RUN = "run"


@dataclass(frozen=True, slots=True)
class WriterNames:
    """The names of one query, application or run."""

    prefix: str
    kind: WriterKind
    writer_id: str

    @property
    def decision(self) -> str:
        """The group of the decisions."""
        return f"{self._base}:decision"

    def piece(self, piece_set: str, number: int) -> str:
        """The group of a piece of a decision, in one of the sets that take turns."""
        return f"{self._base}:decision-{piece_set}-{number}"

    def task(self, partition_id: int) -> str:
        """The transactional id of a task, which is its group's id as well."""
        return f"{self._base}:task-{partition_id}"

    @property
    def _base(self) -> str:
        writer_id = self.writer_id.replace("%", "%25").replace(":", "%3A")
        return f"{self.prefix}:{self.kind.value}:{writer_id}"


def task_number(transactional_id: str) -> int:
    """Which task of its writer a transactional id is of."""
    return int(transactional_id.rpartition("-")[2])
