"""Calls to a broker through librdkafka's admin client, with errors as a person expects them."""

from collections.abc import Mapping
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from typing import Any, TypeVar

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient

from tidelog.cli.failures import EXIT_NOT_FOUND, fail

T = TypeVar("T")

CALL_TIMEOUT_S = 15.0

_NOT_FOUND = {
    KafkaError.UNKNOWN_TOPIC_OR_PART,
    KafkaError._UNKNOWN_TOPIC,
    KafkaError._UNKNOWN_PARTITION,
    KafkaError.GROUP_ID_NOT_FOUND,
}


def client_settings(bootstrap: str, settings: Mapping[str, str]) -> dict[str, Any]:
    """Settings of librdkafka for this command: silent, since we report its errors ourselves."""
    return {
        "bootstrap.servers": bootstrap,
        "client.id": "tidelog-cli",
        "log_level": 0,
        "socket.connection.setup.timeout.ms": 5000,
        **settings,
    }


def open_admin(bootstrap: str, settings: Mapping[str, str]) -> AdminClient:
    """An admin client of a broker that has answered; the command ends when none does."""
    admin = AdminClient(client_settings(bootstrap, settings))
    try:
        admin.list_topics(timeout=CALL_TIMEOUT_S / 3)
    except KafkaException as error:
        reason = error.args[0]
        if reason.code() in (KafkaError._TRANSPORT, KafkaError._TIMED_OUT):
            fail(f"no broker answers at {bootstrap}: is one running? (tidelog up)")
        fail(f"{bootstrap}: {reason.str()}")
    return admin


def wait_for(future: "Future[T]", doing: str) -> T:
    """The result of an admin call, or the end of the command with the broker's words."""
    try:
        return future.result(CALL_TIMEOUT_S)
    except KafkaException as error:
        reason = error.args[0]
        exit_code = EXIT_NOT_FOUND if reason.code() in _NOT_FOUND else 1
        fail(f"{doing}: {reason.str()} ({reason.name()})", exit_code=exit_code)
    except FutureTimeoutError:
        fail(f"{doing}: no answer within {CALL_TIMEOUT_S:g} s")
