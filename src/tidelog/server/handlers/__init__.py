"""The handlers of the node, one module per API.

Each module says what it serves:

    API = ApiKey.METADATA
    VERSIONS = (0, 13)           # advertised by ApiVersions
    REQUEST = MetadataRequest    # decoded by dispatch; None: `handle` reads request.body itself
    def handle(node, request, body) -> MetadataResponse | RawResponse | Deferred | None
    def error_response(body, error: ApiError) -> MetadataResponse

and may have `SERVED_FROM`: the lowest version really served where the advertised one is lower.
"""

HANDLERS: tuple[str, ...] = (
    # the data path
    "api_versions",
    "produce",
    "fetch",
    # topics, settings and the cluster
    # groups
    # transactions
)
