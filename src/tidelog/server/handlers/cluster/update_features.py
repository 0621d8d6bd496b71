"""UpdateFeatures: raise or lower the finalized levels of features, all of them or none."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.cluster.controller.decision import Decision
from tidelog.cluster.controller.feature_changes import FeatureUpdate, UpgradeType, update_features
from tidelog.cluster.features import KRAFT_VERSION
from tidelog.promise import Promise
from tidelog.protocol.api_keys import ApiKey
from tidelog.protocol.apis.update_features import (
    UpdatableFeatureResult,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)
from tidelog.protocol.errors import ApiError
from tidelog.security.acl import AclOperation, ResourceType
from tidelog.server.needs import Need, cluster

if TYPE_CHECKING:
    from tidelog.server.controller.controller import Controller
    from tidelog.server.controller.request_context import RequestContext
    from tidelog.server.node import Node
    from tidelog.server.request import Request

API = ApiKey.UPDATE_FEATURES
VERSIONS = (0, 2)
REQUEST = UpdateFeaturesRequest
ON_CONTROLLER = True
NEEDS = (Need(AclOperation.ALTER, ResourceType.CLUSTER, cluster),)


def handle(
    node: Node, request: Request, body: UpdateFeaturesRequest
) -> Promise[UpdateFeaturesResponse]:
    return node.controller.forward(request, body)


def decide(
    controller: Controller, context: RequestContext | None, body: UpdateFeaturesRequest
) -> Decision[UpdateFeaturesResponse]:
    updates = [
        FeatureUpdate(
            update.feature,
            update.max_version_level,
            UpgradeType.SAFE_DOWNGRADE if update.allow_downgrade else update.upgrade_type,
        )
        for update in body.feature_updates
    ]
    decision = update_features(
        updates,
        controller.latest,
        controller.settings,
        controller.voter_ids,
        validate_only=body.validate_only,
    )
    if decision.rows is not None:
        # Kafka's tools look for these words.
        raise ApiError(
            decision.rows.code,
            "The update failed for all features since the following feature had an "
            f"error: {decision.rows.message}",
        )
    levels = {update.name: update.level for update in updates}
    kraft_version = 0 if body.validate_only else levels.get(KRAFT_VERSION, 0)
    response = UpdateFeaturesResponse(
        results=[UpdatableFeatureResult(feature=update.feature) for update in body.feature_updates]
    )
    return Decision(decision.records, response, kraft_version)


def error_response(body: UpdateFeaturesRequest, error: ApiError) -> UpdateFeaturesResponse:
    return UpdateFeaturesResponse(error_code=error.code, error_message=error.message)
