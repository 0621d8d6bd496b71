"""UpdateFeatures (key 57): raise or lower finalized feature levels; below 1 removes a feature."""

from tidelog.protocol.schema import BOOL, INT8, INT16, INT32, STRING, Array, Message, Struct, field


class FeatureUpdateKey(Struct):
    feature: str = field(STRING, "0+")
    max_version_level: int = field(INT16, "0+")
    allow_downgrade: bool = field(BOOL, "0")
    upgrade_type: int = field(INT8, "1+", default=1)


class UpdateFeaturesRequest(Message, api_key=57, versions="0-2", flexible="0+"):
    timeout_ms: int = field(INT32, "0+", default=60000)
    feature_updates: list[FeatureUpdateKey] = field(Array(FeatureUpdateKey), "0+")
    validate_only: bool = field(BOOL, "1+")


class UpdatableFeatureResult(Struct):
    feature: str = field(STRING, "0+")
    error_code: int = field(INT16, "0+")
    error_message: str | None = field(STRING, "0+", nullable="0+", default=None)


class UpdateFeaturesResponse(Message, api_key=57, versions="0-2", flexible="0+"):
    throttle_time_ms: int = field(INT32, "0+")
    error_code: int = field(INT16, "0+")
    error_message: str | None = field(STRING, "0+", nullable="0+", default=None)
    results: list[UpdatableFeatureResult] = field(Array(UpdatableFeatureResult), "0-1")
