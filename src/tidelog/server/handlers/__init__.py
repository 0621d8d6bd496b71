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
that is really served, where the advertised one is lower. `is_offered(node)` may say that an API is
not advertised for now.
"""

HANDLERS: tuple[str, ...] = (
    # the data path
    "api_versions",
    "produce",
    "fetch",
    # topics, settings and the cluster
    "metadata",
    "describe_topic_partitions",
    "describe_cluster",
    "create_topics",
    "delete_topics",
    "create_partitions",
    "delete_records",
    "list_offsets",
    "offset_for_leader_epoch",
    "describe_configs",
    "alter_configs",
    "incremental_alter_configs",
    "list_config_resources",
    "describe_log_dirs",
    "alter_replica_log_dirs",
    "elect_leaders",
    "list_partition_reassignments",
    "alter_partition_reassignments",
    "update_features",
    "describe_quorum",
    "unregister_broker",
    "describe_client_quotas",
    "alter_client_quotas",
    "get_telemetry_subscriptions",
    "push_telemetry",
    "describe_user_scram_credentials",
    "alter_user_scram_credentials",
    "describe_acls",
    "create_acls",
    "delete_acls",
    "sasl_handshake",
    "sasl_authenticate",
    "create_delegation_token",
    "renew_delegation_token",
    "expire_delegation_token",
    "describe_delegation_token",
    # groups
    "find_coordinator",
    "join_group",
    "sync_group",
    "heartbeat",
    "leave_group",
    "consumer_group_heartbeat",
    "offset_commit",
    "offset_fetch",
    "offset_delete",
    "list_groups",
    "describe_groups",
    "consumer_group_describe",
    "delete_groups",
    # transactions
    "init_producer_id",
    "add_partitions_to_txn",
    "add_offsets_to_txn",
    "txn_offset_commit",
    "end_txn",
    "write_txn_markers",
    "describe_transactions",
    "list_transactions",
    "describe_producers",
)
