"""Transactions with aiokafka, which speaks the oldest versions."""

from __future__ import annotations

import asyncio

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.errors import KafkaError

from tests.transactions.reading import wait_for

WAIT_S = 30


async def started(bootstrap: str, transactional_id: str) -> AIOKafkaProducer:
    producer = AIOKafkaProducer(bootstrap_servers=bootstrap, transactional_id=transactional_id)
    await producer.start()
    return producer


def test_committed_records_are_seen_and_aborted_ones_are_not(bootstrap: str, topic: str) -> None:
    async def run() -> None:
        writer = await started(bootstrap, topic)
        try:
            for number in range(4):
                await writer.begin_transaction()
                await writer.send_and_wait(topic, b"%d" % number, partition=0)
                if number % 2:
                    await writer.abort_transaction()
                else:
                    await writer.commit_transaction()
        finally:
            await writer.stop()

    asyncio.run(asyncio.wait_for(run(), WAIT_S))
    assert wait_for(bootstrap, topic, 2) == [[b"0", b"2"], []]


def test_offsets_are_committed_with_the_transaction(bootstrap: str, topic: str) -> None:
    group = f"group-of-{topic}"

    async def run() -> None:
        writer = await started(bootstrap, topic)
        reader = AIOKafkaConsumer(
            bootstrap_servers=bootstrap, group_id=group, enable_auto_commit=False
        )
        await reader.start()
        try:
            place = TopicPartition(topic, 0)
            async with writer.transaction():
                await writer.send(topic, b"out", partition=1)
                await writer.send_offsets_to_transaction({place: 7}, group)
            assert await reader.committed(place) == 7
        finally:
            await reader.stop()
            await writer.stop()

    asyncio.run(asyncio.wait_for(run(), WAIT_S))
    assert wait_for(bootstrap, topic, 1) == [[], [b"out"]]


def test_a_new_producer_fences_the_old_one(bootstrap: str, topic: str) -> None:
    async def run() -> None:
        old = await started(bootstrap, topic)
        await old.begin_transaction()
        await old.send_and_wait(topic, b"old", partition=0)
        new = await started(bootstrap, topic)
        try:
            with pytest.raises(KafkaError):
                await old.commit_transaction()
            async with new.transaction():
                await new.send(topic, b"new", partition=0)
        finally:
            await new.stop()
            await old.stop()

    asyncio.run(asyncio.wait_for(run(), WAIT_S))
    assert wait_for(bootstrap, topic, 1) == [[b"new"], []]
