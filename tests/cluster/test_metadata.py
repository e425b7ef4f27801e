"""Changes to the cluster: the store first, then the image, and several brokers on one store."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path

import pytest

from skylog.cluster import BrokerImage, ClusterImage, ClusterMetadata, EmbeddedStore, MetadataStore
from skylog.cluster.metadata import PRODUCER_ID_BLOCK, new_partitions, new_topic
from skylog.errors import ErrorCode, KafkaError

NOBODY = ClusterImage("c", 1, {})


def changing(tmp_path: Path, work: Callable[[ClusterMetadata], Awaitable[None]]) -> None:
    async def run() -> None:
        await work(ClusterMetadata(EmbeddedStore(tmp_path), NOBODY))

    asyncio.run(run())


async def loaded(store: MetadataStore) -> ClusterMetadata:
    metadata = ClusterMetadata(store, NOBODY)
    await metadata.load()
    return metadata


def test_a_topic_is_shown_to_listeners_with_the_image_before(tmp_path: Path) -> None:
    async def work(metadata: ClusterMetadata) -> None:
        seen: list[tuple[set[str], set[str]]] = []
        metadata.listen(lambda before, now: seen.append((set(before.topics), set(now.topics))))
        topic = await metadata.create_topic(new_topic("a", [[1, 2], [2, 1]], {"retention.ms": "5"}))
        await metadata.create_topic(new_topic("b", [[1]], {}))
        await metadata.delete_topic(topic)
        assert seen == [(set(), {"a"}), ({"a"}, {"a", "b"}), ({"a", "b"}, {"b"})]
        assert [each.leader for each in topic.partitions] == [1, 2]
        assert topic.partitions[1].replicas == topic.partitions[1].in_sync_replicas == (2, 1)
        assert topic.configs == {"retention.ms": "5"}

    changing(tmp_path, work)


def test_everything_is_there_after_the_store_is_loaded_again(tmp_path: Path) -> None:
    async def work(metadata: ClusterMetadata) -> None:
        topic = await metadata.create_topic(new_topic("a", [[1]], {}))
        topic = await metadata.replace_topic(replace(topic, partitions=topic.partitions + new_partitions([[1], [1]])))
        topic = await metadata.replace_topic(replace(topic, configs={"cleanup.policy": "compact"}))
        gone = await metadata.create_topic(new_topic("gone", [[1]], {}))
        await metadata.delete_topic(gone)
        again = await loaded(EmbeddedStore(tmp_path))
        assert again.image.topics == metadata.image.topics == {"a": topic}
        assert len(topic.partitions) == 3
        assert topic.version == 3

    changing(tmp_path, work)


def test_a_name_is_taken_once(tmp_path: Path) -> None:
    async def work(metadata: ClusterMetadata) -> None:
        topic = await metadata.create_topic(new_topic("a", [[1]], {}))
        with pytest.raises(KafkaError) as caught:
            await metadata.create_topic(new_topic("a", [[1], [1]], {}))
        assert caught.value.code is ErrorCode.TOPIC_ALREADY_EXISTS
        assert metadata.image.topics == {"a": topic}

    changing(tmp_path, work)


def test_a_topic_that_is_created_again_has_another_id(tmp_path: Path) -> None:
    async def work(metadata: ClusterMetadata) -> None:
        first = await metadata.create_topic(new_topic("a", [[1]], {}))
        await metadata.delete_topic(first)
        second = await metadata.create_topic(new_topic("a", [[1]], {}))
        assert first.topic_id != second.topic_id
        assert metadata.image.names == {second.topic_id: "a"}

    changing(tmp_path, work)


def test_a_change_to_a_topic_that_has_changed_meanwhile_is_refused(tmp_path: Path) -> None:
    async def work(metadata: ClusterMetadata) -> None:
        stale = await metadata.create_topic(new_topic("a", [[1]], {}))
        current = await metadata.replace_topic(replace(stale, configs={"retention.ms": "1"}))
        for change in (metadata.replace_topic(replace(stale, configs={})), metadata.delete_topic(stale)):
            with pytest.raises(KafkaError, match="changed at the same time") as caught:
                await change
            assert caught.value.code is ErrorCode.REQUEST_TIMED_OUT
        assert metadata.image.topics == {"a": current}

    changing(tmp_path, work)


def test_a_start_after_a_crash_raises_the_epoch_of_every_partition(tmp_path: Path) -> None:
    async def work(metadata: ClusterMetadata) -> None:
        await metadata.create_topic(new_topic("a", [[1], [1]], {}))
        await metadata.create_topic(new_topic("b", [[1]], {}))
        for epoch in (1, 2):
            metadata = await loaded(EmbeddedStore(tmp_path))
            await metadata.begin_epochs()
            for image in (metadata.image, (await loaded(EmbeddedStore(tmp_path))).image):
                epochs = [[each.leader_epoch for each in topic.partitions] for topic in image.topics.values()]
                assert sorted(epochs) == [[epoch], [epoch, epoch]]

    changing(tmp_path, work)


def test_a_broker_that_registers_is_seen_and_an_earlier_address_replaced(tmp_path: Path) -> None:
    async def work(metadata: ClusterMetadata) -> None:
        metadata.register(BrokerImage(1, "a", 9092))
        metadata.register(BrokerImage(2, "b", 9092))
        metadata.register(BrokerImage(1, "a", 9093))
        assert {node: each.port for node, each in metadata.image.brokers.items()} == {1: 9093, 2: 9092}

    changing(tmp_path, work)


def test_producer_ids_are_never_given_twice_by_brokers_of_one_store(tmp_path: Path) -> None:
    async def work(_: ClusterMetadata) -> None:
        store = EmbeddedStore(tmp_path)
        brokers = [ClusterMetadata(store, NOBODY) for _ in range(3)]
        rounds = PRODUCER_ID_BLOCK // 2 + 10
        given = await asyncio.gather(*(broker.next_producer_id() for _ in range(rounds) for broker in brokers))
        after = ClusterMetadata(EmbeddedStore(tmp_path), NOBODY)  # what the others had left of their blocks is lost
        given += [await after.next_producer_id()]
        assert len(set(given)) == len(given) == 3 * rounds + 1
        assert max(given) == given[-1]

    changing(tmp_path, work)
