"""The admin surface through the clients that people use: kafka-python and librdkafka."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)
from kafka import KafkaAdminClient
from kafka import TopicPartition as KafkaPythonPartition
from kafka.admin import ConfigResource, ConfigResourceType, NewTopic

from tidelog.protocol.errors import ErrorCode
from tidelog.testing.broker import Broker

NewName = Callable[[str], str]
TIMEOUT_S = 30


@pytest.fixture
def librdkafka(handlers_broker: Broker) -> Any:
    return AdminClient({"bootstrap.servers": handlers_broker.bootstrap_servers})


@pytest.fixture
def kafka_python(handlers_broker: Broker) -> Iterator[Any]:
    client = KafkaAdminClient(bootstrap_servers=handlers_broker.bootstrap_servers)
    yield client
    client.close()


def test_librdkafka_hears_that_acls_need_an_authorizer(librdkafka: Any) -> None:
    binding = AclBinding(
        ResourceType.TOPIC,
        "topic",
        ResourcePatternType.LITERAL,
        "User:ann",
        "*",
        AclOperation.READ,
        AclPermissionType.ALLOW,
    )
    with pytest.raises(KafkaException) as error:
        librdkafka.create_acls([binding])[binding].result(TIMEOUT_S)
    assert error.value.args[0].code() == ErrorCode.SECURITY_DISABLED


def test_librdkafka_sets_scram_credentials(librdkafka: Any, new_name: NewName) -> None:
    user = new_name("user")
    info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 4096)
    upsertion = UserScramCredentialUpsertion(user, info, b"secret", b"salt")
    librdkafka.alter_user_scram_credentials([upsertion])[user].result(TIMEOUT_S)
    described = librdkafka.describe_user_scram_credentials([user])[user].result(TIMEOUT_S)
    (found,) = described.scram_credential_infos
    assert (found.mechanism, found.iterations) == (ScramMechanism.SCRAM_SHA_256, 4096)


def test_kafka_python_describes_the_cluster(kafka_python: Any, handlers_broker: Broker) -> None:
    cluster = kafka_python.describe_cluster()
    assert cluster["controller_id"] == 1
    assert [broker["port"] for broker in cluster["brokers"]] == [handlers_broker.port]
    quorum = kafka_python.describe_metadata_quorum()
    assert quorum["topics"][0]["partitions"][0]["leader_id"] == 1


def test_kafka_python_reads_settings_of_broker_and_topic(
    kafka_python: Any, new_name: NewName
) -> None:
    topic = new_name("topic")
    kafka_python.create_topics([NewTopic(topic, 1, 1, topic_configs={"cleanup.policy": "compact"})])
    described = kafka_python.describe_configs(
        [
            ConfigResource(ConfigResourceType.TOPIC, topic),
            ConfigResource(ConfigResourceType.BROKER, "1"),
        ],
        config_filter="all",
    )
    text = str(described)
    assert "compact" in text
    assert "num.partitions" in text


def test_kafka_python_sees_log_directories_and_offsets(
    kafka_python: Any, handlers_broker: Broker, new_name: NewName
) -> None:
    topic = new_name("topic")
    kafka_python.create_topics([NewTopic(topic, 1, 1)])
    assert str(handlers_broker.data) in str(kafka_python.describe_log_dirs())
    assert kafka_python.list_partition_reassignments() in ({}, [])
    partition = KafkaPythonPartition(topic, 0)
    offsets = kafka_python.list_partition_offsets({partition: -1})
    assert offsets[partition].offset == 0
