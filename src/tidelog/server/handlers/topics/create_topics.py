"""CreateTopics: new topics, each decided by itself.

A topic may leave its number of partitions and replicas (-1) to the node. From version 5 the answer
tells what the topic got, settings included.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.cluster.controller.decision import Decision
from tidelog.cluster.controller.topic_changes import CreatedTopic, NewTopic, create_topics
from tidelog.cluster.settings.config_description import describe_topic_config
from tidelog.cluster.settings.topic_config import NOT_KAFKAS
from tidelog.promise import Promise
from tidelog.protocol.api_keys import ApiKey
from tidelog.protocol.apis.create_topics import (
    CreatableTopic,
    CreatableTopicConfigs,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from tidelog.protocol.errors import ApiError, ErrorCode
from tidelog.security.acl import AclOperation, ResourceType
from tidelog.server.controller.mutation_quota import MutationQuota
from tidelog.server.needs import Need, Refusal, cluster, topic_names

if TYPE_CHECKING:
    from tidelog.server.controller.controller import Controller
    from tidelog.server.controller.request_context import RequestContext
    from tidelog.server.node import Node
    from tidelog.server.request import Request

API = ApiKey.CREATE_TOPICS
VERSIONS = (2, 7)
REQUEST = CreateTopicsRequest
ON_CONTROLLER = True
NEEDS = (
    Need(
        AclOperation.CREATE,
        ResourceType.TOPIC,
        topic_names,
        Refusal.ROW,
        unless=Need(AclOperation.CREATE, ResourceType.CLUSTER, cluster),
    ),
    Need(AclOperation.DESCRIBE_CONFIGS, ResourceType.TOPIC, topic_names, Refusal.OMISSION),
)

# From here on clients know THROTTLING_QUOTA_EXCEEDED.
_QUOTA_ERROR_FROM = 6


def handle(
    node: Node, request: Request, body: CreateTopicsRequest
) -> Promise[CreateTopicsResponse]:
    return node.controller.forward(request, body)


def decide(
    controller: Controller, context: RequestContext | None, body: CreateTopicsRequest
) -> Decision[CreateTopicsResponse]:
    rejected: dict[str, ApiError] = {}
    topics: list[NewTopic] = []
    for topic in body.topics:
        try:
            topics.append(_new_topic(topic))
        except ApiError as error:
            rejected[topic.name] = error
    quota = MutationQuota(controller.quotas, context, refuses_from=_QUOTA_ERROR_FROM)
    decision = create_topics(
        topics,
        controller.latest,
        controller.settings,
        controller.random,
        controller.new_id,
        validate_only=body.validate_only,
        charge=quota.charge,
    )
    rows = [_error_row(name, error) for name, error in rejected.items()]
    asked = {topic.name: topic for topic in topics}
    rows += [_created_row(controller, asked[created.name], created) for created in decision.rows]
    response = CreateTopicsResponse(throttle_time_ms=quota.throttle_ms, topics=rows)
    return Decision(decision.records, response)


def error_response(body: CreateTopicsRequest, error: ApiError) -> CreateTopicsResponse:
    names = dict.fromkeys(topic.name for topic in body.topics)
    return CreateTopicsResponse(topics=[_error_row(name, error) for name in names])


def _new_topic(topic: CreatableTopic) -> NewTopic:
    assignments = {each.partition_index: tuple(each.broker_ids) for each in topic.assignments}
    if len(assignments) < len(topic.assignments):
        raise ApiError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT, "A partition is assigned more than once."
        )
    configs = {each.name: each.value for each in topic.configs}
    if len(configs) < len(topic.configs):
        raise ApiError(ErrorCode.INVALID_REQUEST, "A setting is given more than once.")
    return NewTopic(
        topic.name, topic.num_partitions, topic.replication_factor, assignments, configs
    )


def _error_row(name: str, error: ApiError) -> CreatableTopicResult:
    return CreatableTopicResult(
        name=name, error_code=error.code, error_message=error.message, configs=[]
    )


def _created_row(
    controller: Controller, asked: NewTopic, created: CreatedTopic
) -> CreatableTopicResult:
    if created.error is not None:
        return _error_row(created.name, created.error)
    overrides = {name: value for name, value in asked.configs.items() if value is not None}
    return CreatableTopicResult(
        name=created.name,
        topic_id=created.topic_id,
        num_partitions=created.partition_count,
        replication_factor=created.replication_factor,
        configs=[
            CreatableTopicConfigs(
                name=entry.name,
                value=entry.value,
                read_only=entry.read_only,
                config_source=entry.source,
                is_sensitive=entry.sensitive,
            )
            for entry in describe_topic_config(overrides, controller.config_layers())
            # Who does not use a setting of ours need not know that there are any.
            if entry.name in overrides or entry.name not in NOT_KAFKAS
        ],
    )
