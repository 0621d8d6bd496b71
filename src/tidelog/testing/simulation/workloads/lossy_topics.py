"""Topics that may lose what was committed: by an unclean election, or with the page cache.

Which offsets were lost, and that the topic allows it, is found out beside the clients. Whatever
else was acknowledged must be there in the end, once and where it was said to be.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from tidelog.testing.history import Operation, Outcome, check_history
from tidelog.testing.simulation.options import Options
from tidelog.testing.simulation.workloads.consuming import read_everything
from tidelog.testing.simulation.workloads.plain_sends import PlainProducer
from tidelog.testing.simulation.workloads.topics import create_topics
from tidelog.testing.simulation.workloads.workspace import Workspace

_TOPIC = "lossy"
_PRODUCERS = 3
_CONFIGS = {
    "unclean": {"unclean.leader.election.enable": "true"},
    "page-cache": {"durability": "page-cache"},
    "both": {"unclean.leader.election.enable": "true", "durability": "page-cache"},
}


class LossyTopics:
    """Producers to one topic, and a reader at the end."""

    def __init__(self, workspace: Workspace, options: Options) -> None:
        self.workspace = workspace
        self._options = options

    @staticmethod
    def is_drawn(options: Options) -> bool:
        return bool(options.lossy_topic)

    def start(self) -> None:
        options, workspace = self._options, self.workspace
        admin = workspace.make_client("lossy-admin")
        configs = {"segment.bytes": str(options.segment_bytes), **_CONFIGS[options.lossy_topic]}
        admin.start(create_topics(admin, workspace, [_TOPIC], options.partitions, configs))
        client = workspace.make_client("lossy-producer")
        for task in range(_PRODUCERS):
            producer = PlainProducer(client, workspace, f"lossy/{task}", options)
            workspace.start_when_ready(client, producer.run)

    def wind_up(self) -> None:
        workspace = self.workspace
        client = workspace.make_client("lossy-last")
        client.start(
            read_everything(client, workspace.partitions, workspace.history, read_committed=False)
        )

    def failures(self) -> Iterable[str]:
        history = self.workspace.history
        read = {
            record.value for operation in history for poll in operation.polls for record in poll
        }
        rest = [self._without_losses(operation, read) for operation in history]
        return map(str, check_history(rest).anomalies)

    def _without_losses(self, operation: Operation, read: set[object]) -> Operation:
        """What is lost counts as never answered."""
        is_lost = any(
            send.offset is not None
            and send.value not in read
            and self.workspace.may_be_lost(send.topic_partition, send.offset)
            for send in operation.sends
        )
        if not is_lost:
            return operation
        sends = [send._replace(offset=None) for send in operation.sends]
        return replace(operation, outcome=Outcome.UNKNOWN, sends=sends)
