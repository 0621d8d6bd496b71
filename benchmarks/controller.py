"""How long the controller takes to decide what becomes of a broker's partitions.

    python -m benchmarks.controller [PARTITIONS]

A cluster of three brokers with three replicas of each partition loses one, which leads a third of
them, hears of it again, and lets it shut down. Nothing else happens in a node's loop meanwhile, so
each of these has to be short. Prints milliseconds, the best of several runs.
"""

import sys
import time
from collections.abc import Callable
from random import Random
from typing import Any

from tidelog.cluster.controller.broker_heartbeats import BrokerHeartbeats
from tidelog.cluster.controller.broker_lifecycle import fence_broker, unfence_broker
from tidelog.cluster.controller.broker_registrations import BrokerRegistration, register_broker
from tidelog.cluster.controller.controller_settings import ControllerSettings
from tidelog.cluster.controller.decision import Decision
from tidelog.cluster.controller.elections import balance_leaders
from tidelog.cluster.controller.topic_changes import NewTopic, create_topics
from tidelog.cluster.features import initial_levels
from tidelog.cluster.metadata.image import Endpoint, MetadataImage
from tidelog.cluster.metadata.records.settings import FeatureLevelRecord
from tidelog.protocol.schema import Message

_RUNS = 5
_PARTITIONS_PER_TOPIC = 20
_SETTINGS = ControllerSettings(node_id=1)


def _after(image: MetadataImage, records: list[Message]) -> MetadataImage:
    return image.apply(records, image.offset + len(records), 1, 0)[0]


def _registration(broker_id: int, incarnation: int, image: MetadataImage) -> Decision[int]:
    return register_broker(
        BrokerRegistration(
            broker_id,
            (1000 * incarnation + broker_id).to_bytes(16, "big"),
            (Endpoint("PLAINTEXT", "localhost", 9092),),
            log_dirs=((100 + broker_id).to_bytes(16, "big"),),
        ),
        image,
        _SETTINGS,
        BrokerHeartbeats(),
        now_ms=0,
        next_offset=image.offset + 1,
    )


def _unfence(broker_id: int, image: MetadataImage) -> Decision[None]:
    return unfence_broker(broker_id, image.brokers[broker_id].epoch, image, _SETTINGS)


def cluster(partitions: int) -> MetadataImage:
    """Three brokers; each leads a third of the partitions and has a replica of all."""
    levels = initial_levels().items()
    image = _after(
        MetadataImage(),
        [FeatureLevelRecord(name=name, feature_level=each) for name, each in levels],
    )
    for broker_id in (1, 2, 3):
        image = _after(image, _registration(broker_id, 1, image).records)
        image = _after(image, _unfence(broker_id, image).records)
    random = Random(1)
    for number in range(partitions // _PARTITIONS_PER_TOPIC):
        topic = NewTopic(f"topic-{number}", _PARTITIONS_PER_TOPIC, 3)
        created = create_topics([topic], image, _SETTINGS, random, lambda: random.randbytes(16))
        image = _after(image, created.records)
    return image


def _measure(what: str, decide: Callable[[], Decision[Any]]) -> Decision[Any]:
    best_ms = float("inf")
    for _ in range(_RUNS):
        start = time.perf_counter()
        decision = decide()
        best_ms = min(best_ms, (time.perf_counter() - start) * 1000)
    print(f"{what:<44} {len(decision.records):>6} records {best_ms:>8.1f} ms")
    return decision


def main() -> None:
    partitions = int(sys.argv[1]) if len(sys.argv) > 1 else 3000
    image = cluster(partitions)
    print(f"{partitions} partitions, {3 * partitions} replicas")
    fenced = _measure("fence a broker", lambda: fence_broker(1, image, _SETTINGS))
    without = _after(image, fenced.records)
    _measure("unfence it again", lambda: _unfence(1, without))
    _measure("register a new incarnation of a live broker", lambda: _registration(1, 2, image))
    lone = without
    for broker_id in (2, 3):
        lone = _after(lone, fence_broker(broker_id, lone, _SETTINGS).records)
    _measure("unfence the first of a cluster that was down", lambda: _unfence(3, lone))
    _measure("look for leaders to balance", lambda: balance_leaders(without, _SETTINGS))


if __name__ == "__main__":
    main()
