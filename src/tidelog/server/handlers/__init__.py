"""The handlers of the node, one module per API.

Each module says what it serves:

    API = ApiKey.METADATA
    VERSIONS = (0, 13)           # advertised by ApiVersions
    REQUEST = MetadataRequest    # decoded by dispatch; None: `handle` reads request.body itself
    def handle(node, request, body) -> MetadataResponse | Deferred | None
    def error_response(body, error: ApiError) -> MetadataResponse

A handler that decodes and encodes itself (REQUEST is None) says from which version on its request
is flexible with FLEXIBLE_FROM, may return a whole frame (bytes or RawResponse), and has no
`error_response`: an error that leaves it ends the connection. SERVED_FROM is the lowest version
that is really served, where the advertised one is lower.
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
