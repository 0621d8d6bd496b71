"""The controller: it decides what becomes of the cluster.

A request is decided on the latest image, one after the other and without I/O, by the `decide` of
its API. The records of the decision are proposed before the next request is decided, so that each
builds on the one before; the answer is given when they are committed.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from functools import partial
from random import Random
from typing import TYPE_CHECKING, Any

from tidelog.cluster.controller.broker_heartbeats import BrokerHeartbeats
from tidelog.cluster.controller.config_changes import first_cluster_settings
from tidelog.cluster.controller.controller_settings import ControllerSettings
from tidelog.cluster.controller.decision import Decision, UncleanElection
from tidelog.cluster.controller.feature_changes import unserved_features_off
from tidelog.cluster.metadata.image import MetadataImage
from tidelog.cluster.metadata.metadata_log import MetadataLog
from tidelog.cluster.settings.config_description import BrokerConfigLayers
from tidelog.promise import Promise
from tidelog.protocol.errors import ApiError, ErrorCode
from tidelog.protocol.schema import Message
from tidelog.protocol.uuids import random_uuid
from tidelog.security.quotas import ClientQuotas
from tidelog.server.controller import broker_requests
from tidelog.server.handlers.cluster import unregister_broker, update_features
from tidelog.server.handlers.security import alter_user_scram_credentials
from tidelog.server.handlers.settings import (
    alter_client_quotas,
    alter_configs,
    incremental_alter_configs,
)
from tidelog.server.handlers.topics import (
    alter_partition_reassignments,
    create_partitions,
    create_topics,
    delete_topics,
    elect_leaders,
)

if TYPE_CHECKING:
    from tidelog.server.controller.request_context import RequestContext

Decide = Callable[["Controller", "RequestContext | None", Any], Decision[Any]]

_DECIDE: dict[type[Message], Decide] = {
    **{
        module.REQUEST: module.decide
        for module in (
            alter_client_quotas,
            alter_configs,
            alter_partition_reassignments,
            alter_user_scram_credentials,
            create_partitions,
            create_topics,
            delete_topics,
            elect_leaders,
            incremental_alter_configs,
            unregister_broker,
            update_features,
        )
    },
    **broker_requests.DECIDE,
}


class Controller:
    """The controller of a cluster, where this node leads the quorum. The attributes are what
    decisions are made from."""

    def __init__(
        self,
        metadata: MetadataLog,
        settings: ControllerSettings,
        quotas: ClientQuotas,
        random: Random,
        *,
        heartbeats: BrokerHeartbeats,
        now_ms: Callable[[], int],
        config_layers: Callable[[], BrokerConfigLayers],
        on_exception: Callable[[], None],
        on_unclean_election: Callable[[UncleanElection], None],
    ) -> None:
        """`now_ms` is a monotonic clock. `on_exception` is called while an exception that is a bug
        is being handled, `on_unclean_election` when one is committed."""
        self.settings = settings
        self.quotas = quotas
        self.heartbeats = heartbeats
        self.now_ms = now_ms
        self.random = random
        self.new_id = partial(random_uuid, random)
        self.config_layers = config_layers
        self._metadata = metadata
        self._on_exception = on_exception
        self._on_unclean_election = on_unclean_election

    @property
    def latest(self) -> MetadataImage:
        """What decisions build on: it has also what is proposed and not committed yet."""
        return self._metadata.latest

    @property
    def next_offset(self) -> int:
        """Where the first record of the next decision will stand."""
        return self._metadata.next_offset

    @property
    def voter_ids(self) -> list[int]:
        """The controllers that vote in the quorum."""
        return [voter.key.id for voter in self._metadata.quorum.voters]

    @property
    def is_active(self) -> bool:
        """Whether this is the controller that counts."""
        return self._metadata.is_active

    def activate(self, dead_broker_ids: Collection[int] = ()) -> None:
        """Takes over: brokers have their sessions again, and what every cluster has is written.

        `dead_broker_ids` are brokers that need not be waited for.
        """
        self.heartbeats.activate(self.latest, self.now_ms(), dead_broker_ids)
        records = first_cluster_settings(self.latest, self.settings)
        self._metadata.propose([*records, *unserved_features_off(self.latest)])

    def ask(self, body: Message, context: RequestContext | None) -> Promise[Any]:
        """The answer to a request, once what it changes is committed.

        Fails with an ApiError when nothing of it is decided, or it is not known to be committed.
        The node itself asks without a context.
        """
        if not self.is_active:
            return Promise.failed(
                ApiError(ErrorCode.NOT_CONTROLLER, "this node is not the controller")
            )
        return self.carry_out(partial(_DECIDE[type(body)], self, context, body))

    def carry_out(self, decide: Callable[[], Decision[Any]]) -> Promise[Any]:
        """The result of a decision, once what it changes is committed. Fails as `ask` does."""
        try:
            decision = decide()
            proposal = self._metadata.propose(
                decision.records, kraft_version=decision.kraft_version
            )
        except ApiError as error:
            return Promise.failed(error)
        except Exception:  # noqa: BLE001 - it is told, and who asks gets an answer
            self._on_exception()
            return Promise.failed(
                ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, "the controller's log has the details")
            )
        return proposal.committed.then(lambda _: self._committed(decision))

    def _committed(self, decision: Decision[Any]) -> Any:
        for election in decision.unclean_elections:
            self._on_unclean_election(election)
        return decision.rows
