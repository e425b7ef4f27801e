"""Changes to the cluster: topics created, grown, configured and deleted; producer ids given out.

Every change is committed to the store before the image shows it, so what a client has been told survives a crash.
Whoever owns logs listens to the image and opens or removes them.
"""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final
from uuid import uuid4

from skylog.cluster.image import BrokerImage, ClusterImage, PartitionImage, TopicImage
from skylog.cluster.store import Change, MetadataStore, VersionConflictError
from skylog.errors import ErrorCode, KafkaError

logger = logging.getLogger(__name__)

TOPICS: Final = "/topics/"
PRODUCER_IDS: Final = "/producer-ids"
PRODUCER_ID_BLOCK: Final = 1000

ImageListener = Callable[[ClusterImage, ClusterImage], None]
"""Called with the image before and the image now, on the event loop."""


class ClusterMetadata:
    """The image and the only way to change it. Listeners that fail are counted in `failures`."""

    def __init__(self, store: MetadataStore, image: ClusterImage) -> None:
        self._store = store
        self.image = image
        self.failures = 0
        self._listeners: list[ImageListener] = []
        self._next_producer_id = self._producer_id_limit = 0

    def listen(self, listener: ImageListener) -> None:
        self._listeners.append(listener)

    async def load(self) -> None:
        """Take over what the store holds."""
        entries = await self._store.load(TOPICS)
        topics = {
            path.removeprefix(TOPICS): TopicImage.from_value(path.removeprefix(TOPICS), entry.value, entry.version)
            for path, entry in entries.items()
        }
        before, self.image = self.image, self.image.with_topics(topics)
        for listener in self._listeners:
            listener(before, self.image)  # a broker that cannot apply what it knows must not start

    def register(self, broker: BrokerImage) -> None:
        """Let a broker be seen."""
        self.image = dataclasses.replace(self.image, brokers={**self.image.brokers, broker.node_id: broker})

    def _show(self, topics: Mapping[str, TopicImage]) -> None:
        before, self.image = self.image, self.image.with_topics(topics)
        for listener in self._listeners:
            try:
                listener(before, self.image)
            except Exception:  # the change is durable: the other listeners must hear of it, and so must the client
                self.failures += 1
                logger.exception("a change of the cluster's metadata was not applied in full")

    # -- topics

    async def create_topic(self, topic: TopicImage) -> TopicImage:
        """Commit a topic that `new_topic` has made."""
        try:
            return (await self._put([topic]))[0]
        except VersionConflictError:
            raise topic_exists(topic.name) from None

    async def replace_topic(self, topic: TopicImage) -> TopicImage:
        """Commit a new state of a topic, made from its present one."""
        try:
            return (await self._put([topic]))[0]
        except VersionConflictError:
            raise _changed(topic.name) from None

    async def delete_topic(self, topic: TopicImage) -> None:
        try:
            await self._store.commit([Change(TOPICS + topic.name, None, topic.version)])
        except VersionConflictError:
            raise _changed(topic.name) from None
        self._show({name: each for name, each in self.image.topics.items() if name != topic.name})

    async def begin_epochs(self) -> None:
        """Raise the leader epoch of every partition: after a crash, readers must find out what was cut."""
        topics = [
            dataclasses.replace(
                topic,
                partitions=tuple(
                    dataclasses.replace(each, leader_epoch=each.leader_epoch + 1) for each in topic.partitions
                ),
            )
            for topic in self.image.topics.values()
        ]
        await self._put(topics)

    async def _put(self, topics: Iterable[TopicImage]) -> list[TopicImage]:
        """Commit new states of topics, each against the version it was made from, and show them."""
        changes = [Change(TOPICS + topic.name, topic.to_value(), topic.version) for topic in topics]
        stored = [dataclasses.replace(topic, version=topic.version + 1) for topic in topics]
        if changes:
            await self._store.commit(changes)
            self._show({**self.image.topics, **{topic.name: topic for topic in stored}})
        return stored

    # -- producer ids

    async def next_producer_id(self) -> int:
        """An id that no producer has had before. Taken from the store by the block, so most cost nothing."""
        while self._next_producer_id >= self._producer_id_limit:
            entry = (await self._store.load(PRODUCER_IDS)).get(PRODUCER_IDS)
            start = entry.value["next"] if entry else 0
            change = Change(PRODUCER_IDS, {"next": start + PRODUCER_ID_BLOCK}, entry.version if entry else 0)
            try:
                await self._store.commit([change])
            except VersionConflictError:
                continue  # somebody else took that block
            self._next_producer_id, self._producer_id_limit = start, start + PRODUCER_ID_BLOCK
        producer_id = self._next_producer_id
        self._next_producer_id += 1
        return producer_id


def new_topic(name: str, assignment: Sequence[Sequence[int]], configs: Mapping[str, str]) -> TopicImage:
    """A topic that does not exist yet. Partition i lives on the brokers `assignment[i]`, the first of which leads."""
    return TopicImage(name, uuid4(), new_partitions(assignment), dict(configs), version=0)


def new_partitions(assignment: Sequence[Sequence[int]]) -> tuple[PartitionImage, ...]:
    return tuple(PartitionImage(ids[0], 0, tuple(ids), tuple(ids)) for ids in assignment)


def topic_exists(name: str) -> KafkaError:
    return KafkaError(ErrorCode.TOPIC_ALREADY_EXISTS, f"topic '{name}' already exists")


def _changed(name: str) -> KafkaError:
    return KafkaError(ErrorCode.REQUEST_TIMED_OUT, f"topic '{name}' was changed at the same time, try again")
