"""DeleteTopics (key 20): by name, or from version 6 on by name or id."""

from tidelog.protocol.schema import INT16, INT32, STRING, UUID, Array, Message, Struct, field


class DeleteTopicState(Struct):
    name: str | None = field(STRING, "6+", nullable="6+", default=None)
    topic_id: bytes = field(UUID, "6+")


class DeleteTopicsRequest(Message, api_key=20, versions="1-6", flexible="4+"):
    topics: list[DeleteTopicState] = field(Array(DeleteTopicState), "6+")
    topic_names: list[str] = field(Array(STRING), "0-5")
    timeout_ms: int = field(INT32, "0+")


class DeletableTopicResult(Struct):
    name: str | None = field(STRING, "0+", nullable="6+")
    topic_id: bytes = field(UUID, "6+")
    error_code: int = field(INT16, "0+")
    error_message: str | None = field(STRING, "5+", nullable="5+", default=None)


class DeleteTopicsResponse(Message, api_key=20, versions="1-6", flexible="4+"):
    throttle_time_ms: int = field(INT32, "1+")
    responses: list[DeletableTopicResult] = field(Array(DeletableTopicResult), "0+")
