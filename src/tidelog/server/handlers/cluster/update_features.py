"""UpdateFeatures: raise or lower the finalized levels of features, all of them or none."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.cluster.controller.feature_changes import FeatureUpdate, UpgradeType
from tidelog.cluster.features import KRAFT_VERSION
from tidelog.protocol.api_keys import ApiKey
from tidelog.protocol.apis.update_features import (
    UpdatableFeatureResult,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)
from tidelog.protocol.errors import ApiError
from tidelog.security.acl import AclOperation, ResourceType
from tidelog.server.decisions import answer_when_committed
from tidelog.server.needs import Need, cluster

if TYPE_CHECKING:
    from tidelog.server.node import Node
    from tidelog.server.request import Deferred, Request

API = ApiKey.UPDATE_FEATURES
VERSIONS = (0, 2)
REQUEST = UpdateFeaturesRequest
NEEDS = (Need(AclOperation.ALTER, ResourceType.CLUSTER, cluster),)


def handle(
    node: Node, request: Request, body: UpdateFeaturesRequest
) -> UpdateFeaturesResponse | Deferred:
    updates = [
        FeatureUpdate(
            update.feature,
            update.max_version_level,
            UpgradeType.SAFE_DOWNGRADE if update.allow_downgrade else update.upgrade_type,
        )
        for update in body.feature_updates
    ]
    decision = node.controller.update_features(
        updates, node.metadata.latest, validate_only=body.validate_only
    )
    if decision.rows is not None:
        # Kafka's tools look for these words.
        return UpdateFeaturesResponse(
            error_code=decision.rows.code,
            error_message="The update failed for all features since the following feature had an "
            f"error: {decision.rows.message}",
        )
    for update in updates:
        if update.name == KRAFT_VERSION and not body.validate_only:
            node.metadata.raise_kraft_version(update.level)
    response = UpdateFeaturesResponse(
        results=[UpdatableFeatureResult(feature=update.feature) for update in body.feature_updates]
    )
    return answer_when_committed(node, request, decision.records, lambda: response)


def error_response(body: UpdateFeaturesRequest, error: ApiError) -> UpdateFeaturesResponse:
    return UpdateFeaturesResponse(error_code=error.code, error_message=error.message)
