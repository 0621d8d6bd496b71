"""Calls to a cluster that are retried until they are answered or their time is up."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TypeVar

from tidelog.client.cluster.cluster import Cluster
from tidelog.client.cluster.offsets import list_offsets
from tidelog.client.cluster.retrying import Retries, retrying
from tidelog.client.errors import AnswerTimeout, ClientError, ConnectError, RetriableError
from tidelog.protocol.apis.metadata import MetadataResponse
from tidelog.protocol.schema import Message
from tidelog.protocol.topic_partition import TopicPartition

R = TypeVar("R", bound=Message)


class ClusterClient:
    """Calls with a deadline of `timeout_s` each; RetriesExhausted when it has passed.

    Each returns when the answer is there or its error is not a retriable one: what is in the answer
    then is the caller's to judge. Leaders and coordinators that move, and brokers that are away,
    are waited for.
    """

    def __init__(self, cluster: Cluster, timeout_s: float) -> None:
        self.cluster = cluster
        self.timeout_s = timeout_s

    def metadata(self, topics: Iterable[str] | None = None) -> MetadataResponse:
        """Brokers, and the given topics or all. Errors of topics are not retried."""
        asked = None if topics is None else list(topics)
        return retrying(lambda: self.cluster.metadata(asked), "metadata", self._retries())

    def ask_any(self, request: Message, answer: type[R], code_of: Callable[[R], int]) -> R:
        """The answer of any broker."""
        return retrying(
            lambda: self.cluster.ask_any(request, answer, code_of),
            type(request).__name__,
            self._retries(),
        )

    def change(self, request: Message, answer: type[R], code_of: Callable[[R], int]) -> R:
        """The same for a request that is refused where it was done before.

        If no answer comes it is not made again, as the broker may be at it still: ClientError.
        """

        def attempt() -> R:
            try:
                return self.cluster.ask_any(request, answer, code_of)
            except AnswerTimeout as error:
                raise ClientError(f"{error}; it may be done all the same") from error

        return retrying(attempt, type(request).__name__, self._retries())

    def ask_brokers(
        self, request: Message, answer: type[R], code_of: Callable[[R], int]
    ) -> list[R]:
        """The answers of all brokers; for what each knows only of itself."""

        def attempt() -> list[R]:
            self.cluster.metadata([])
            addresses = list(self.cluster.view.brokers.values())
            return self.cluster.ask_all(addresses, request, answer, code_of)

        return retrying(attempt, f"{type(request).__name__} to all brokers", self._retries())

    def ask_leader(
        self,
        partition: TopicPartition,
        request: Message,
        answer: type[R],
        code_of: Callable[[R], int],
        *,
        version_max: int | None = None,
    ) -> R:
        """The answer of the leader of a partition."""
        return retrying(
            lambda: self.cluster.ask_leader(
                partition, request, answer, code_of, version_max=version_max
            ),
            f"{type(request).__name__} to the leader of {partition}",
            self._retries(),
        )

    def ask_coordinator(
        self,
        kind: int,
        key: str,
        request: Message,
        answer: type[R],
        code_of: Callable[[R], int],
        *,
        version_max: int | None = None,
    ) -> R:
        """The answer of the coordinator of one group or transactional id."""
        return self.ask_coordinators(
            kind, {key: request}, answer, code_of, version_max=version_max
        )[key]

    def ask_coordinators(
        self,
        kind: int,
        requests: Mapping[str, Message],
        answer: type[R],
        code_of: Callable[[R], int],
        *,
        version_max: int | None = None,
    ) -> dict[str, R]:
        """The answers of the coordinators of many, all asked at once."""
        waiting = dict(requests)
        answers: dict[str, R] = {}
        retries = self._retries()
        while waiting:
            key, reason = next(iter(waiting)), None
            try:
                answered, failed = self.cluster.ask_coordinators(
                    kind, waiting, answer, code_of, version_max=version_max
                )
            except (ConnectError, RetriableError) as error:
                reason = error
            else:
                answers |= answered
                waiting = {key: waiting[key] for key in failed}
                key, reason = next(iter(failed.items()), (key, None))
            if reason is not None:
                retries.wait(f"the coordinator of {key}", reason)
        return {key: answers[key] for key in requests}

    def list_offsets(
        self, asked: Sequence[Mapping[TopicPartition, int]], *, read_committed: bool = False
    ) -> list[dict[TopicPartition, int]]:
        """For each mapping from partitions to timestamps the first offsets not older, or -1.

        EARLIEST and LATEST can stand for a timestamp. Partitions that do not exist are left out.
        """
        return list_offsets(
            self.cluster, asked, read_committed=read_committed, retries=self._retries()
        )

    def _retries(self) -> Retries:
        return Retries(self.timeout_s)
