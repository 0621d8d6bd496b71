"""ApiVersions (key 18): which APIs and versions the broker serves, and its features.

The response header never has tags, whatever the version, so that a client that guessed too high a
version can still read the answer.
"""

from tidelog.protocol.schema import BOOL, INT16, INT32, INT64, STRING, Array, Message, Struct, field


class ApiVersionsRequest(Message, api_key=18, versions="0-4", flexible="3+"):
    client_software_name: str = field(STRING, "3+")
    client_software_version: str = field(STRING, "3+")


class ApiVersion(Struct):
    api_key: int = field(INT16, "0+")
    min_version: int = field(INT16, "0+")
    max_version: int = field(INT16, "0+")


class SupportedFeatureKey(Struct):
    name: str = field(STRING, "3+")
    min_version: int = field(INT16, "3+")
    max_version: int = field(INT16, "3+")


class FinalizedFeatureKey(Struct):
    name: str = field(STRING, "3+")
    max_version_level: int = field(INT16, "3+")
    min_version_level: int = field(INT16, "3+")


class ApiVersionsResponse(Message, api_key=18, versions="0-4", flexible="3+"):
    error_code: int = field(INT16, "0+")
    api_keys: list[ApiVersion] = field(Array(ApiVersion), "0+")
    throttle_time_ms: int = field(INT32, "1+")
    supported_features: list[SupportedFeatureKey] = field(
        Array(SupportedFeatureKey), "3+", tag=0, tagged="3+"
    )
    finalized_features_epoch: int = field(INT64, "3+", default=-1, tag=1, tagged="3+")
    finalized_features: list[FinalizedFeatureKey] = field(
        Array(FinalizedFeatureKey), "3+", tag=2, tagged="3+"
    )
    zk_migration_ready: bool = field(BOOL, "3+", tag=3, tagged="3+")
