"""The handlers of the node, one module per API.

Each module says what it serves:

    API = ApiKey.METADATA
    VERSIONS = (0, 13)           # advertised by ApiVersions
    REQUEST = MetadataRequest    # decoded by dispatch; None: `handle` reads request.body itself
    NEEDS = (Need(...), ...)     # what its clients have to be allowed: server/needs.py
    def handle(node, request, body) -> MetadataResponse | Promise[MetadataResponse]
    def error_response(body, error: ApiError) -> MetadataResponse

An ApiError that `handle` raises, or that its promise fails with, is answered with `error_response`.

A handler that decodes and encodes itself (REQUEST is None) says from which version on its request
is flexible with FLEXIBLE_FROM. It returns a whole frame (bytes or RawResponse), or the slot of an
answer to come (`Deferred`), or None for no answer at all. It has no `error_response`: an error that
leaves it ends the connection. SERVED_FROM is the lowest version that is really served, where the
advertised one is lower. `is_offered(node)` may say that an API is not advertised for now.
ON_CONTROLLER = True is for what a node that is no broker serves as well: changes of the metadata,
for tools that are given the addresses of controllers.

A module may also serve several APIs, with a table of `Handler`s as HANDLERS.
"""

HANDLERS: tuple[str, ...] = (
    # the data path
    "data.api_versions",
    "data.produce",
    "data.fetch",
    # topics, settings and the cluster
    "topics.metadata",
    "topics.describe_topic_partitions",
    "cluster.describe_cluster",
    "topics.create_topics",
    "topics.delete_topics",
    "topics.create_partitions",
    "data.delete_records",
    "data.list_offsets",
    "data.offset_for_leader_epoch",
    "settings.describe_configs",
    "settings.alter_configs",
    "settings.incremental_alter_configs",
    "settings.list_config_resources",
    "cluster.describe_log_dirs",
    "cluster.alter_replica_log_dirs",
    "topics.elect_leaders",
    "topics.list_partition_reassignments",
    "topics.alter_partition_reassignments",
    "cluster.update_features",
    "cluster.quorum",
    "cluster.controller",
    "cluster.unregister_broker",
    "settings.describe_client_quotas",
    "settings.alter_client_quotas",
    "settings.get_telemetry_subscriptions",
    "settings.push_telemetry",
    "security.describe_user_scram_credentials",
    "security.alter_user_scram_credentials",
    "security.refused",
    # groups
    "groups.find_coordinator",
    "groups.join_group",
    "groups.sync_group",
    "groups.heartbeat",
    "groups.leave_group",
    "groups.consumer_group_heartbeat",
    "groups.offset_commit",
    "groups.offset_fetch",
    "groups.offset_delete",
    "groups.list_groups",
    "groups.describe_groups",
    "groups.consumer_group_describe",
    "groups.delete_groups",
    # transactions
    "transactions.init_producer_id",
    "transactions.add_partitions_to_txn",
    "transactions.add_offsets_to_txn",
    "transactions.txn_offset_commit",
    "transactions.end_txn",
    "transactions.write_txn_markers",
    "transactions.describe_transactions",
    "transactions.list_transactions",
    "transactions.describe_producers",
)
