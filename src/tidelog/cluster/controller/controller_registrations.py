"""Controllers tell what they are and what they support."""

from __future__ import annotations

from tidelog.cluster.controller.decision import Decision
from tidelog.cluster.features import MV_CONTROLLER_REGISTRATION
from tidelog.cluster.metadata.image import ControllerImage, MetadataImage
from tidelog.cluster.metadata.image_records import controller_record
from tidelog.protocol.errors import ApiError, ErrorCode


def register_controller(controller: ControllerImage, image: MetadataImage) -> Decision[None]:
    """Registers a controller process in place of an earlier one of its id."""
    if image.metadata_version < MV_CONTROLLER_REGISTRATION:
        raise ApiError(
            ErrorCode.UNSUPPORTED_VERSION,
            "The current MetadataVersion is too old to support controller registrations.",
        )
    if image.controllers.get(controller.controller_id) == controller:
        return Decision([], None)
    return Decision([controller_record(controller)], None)
