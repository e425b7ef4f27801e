"""Changes the cluster: registers brokers; creates, extends, configures and deletes topics; allocates producer ids.

A change is first committed to the store. The image changes when the store reports the change, and the method that made
it returns after that. Listeners to the image open and remove logs.
"""

from __future__ import annotations

import asyncio
import dataclasses
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final
from uuid import uuid4

import orjson

from skylog.cluster.image import NO_CONTROLLER, NO_LEADER, BrokerImage, ClusterImage, PartitionImage, TopicImage
from skylog.cluster.store import Entry, EntryChange, MetadataStore, Operation, VersionCheck, VersionConflictError
from skylog.errors import ErrorCode, KafkaError, SkylogError

logger = logging.getLogger(__name__)

BROKERS: Final = "/brokers/"
CONTROLLER: Final = "/controller/node"
CONTROLLER_EPOCH: Final = "/controller/epoch"
INCARNATIONS: Final = "/incarnations/"
TOPICS: Final = "/topics/"
TOPIC_IDS: Final = "/topic-ids/"
PRODUCER_IDS: Final = "/producer-ids"
PRODUCER_ID_BLOCK: Final = 1000
RECHECK_S: Final = 1.0

TopicDecision = Callable[[TopicImage], TopicImage]
"""Returns the new state of a topic, or the same object to leave it as it is. May raise KafkaError."""

ImageListener = Callable[[ClusterImage, ClusterImage], None]
"""Called on the event loop with the previous and the current image."""


class ClusterMetadata:
    """The current image, and the only way to change it. `failures` counts exceptions of listeners."""

    def __init__(self, store: MetadataStore, image: ClusterImage) -> None:
        self._store = store
        self.image = image
        self.failures = 0
        self._is_loaded = False
        self._listeners: list[ImageListener] = []
        self._reported: dict[str, _Identity] = {}  # by path: the entries that the image contains
        self._pending: list[_PendingChanges] = []
        self._waiting: list[asyncio.Future[None]] = []
        self._next_producer_id = self._producer_id_limit = 0

    def listen(self, listener: ImageListener) -> None:
        self._listeners.append(listener)

    async def load(self) -> None:
        """Load the image from the store, and keep it up to date from now on."""
        await self._store.watch(CONTROLLER, self._update_controller)
        await self._store.watch(BROKERS, self._update_brokers)
        await self._store.watch(TOPICS, self._update_topics)
        self._is_loaded = True

    async def next_image(self) -> None:
        """Wait until the image changes."""
        waiting = asyncio.get_running_loop().create_future()
        self._waiting.append(waiting)
        await waiting

    # -- changes reported by the store

    def _update_controller(self, changed: Mapping[str, Entry | None]) -> None:
        if CONTROLLER in changed:
            entry = changed[CONTROLLER]
            controller_id = entry.value["node_id"] if entry is not None else NO_CONTROLLER
            self._publish(changed, dataclasses.replace(self.image, controller_id=controller_id))

    def _update_brokers(self, changed: Mapping[str, Entry | None]) -> None:
        if not changed:
            return
        brokers = dict(self.image.brokers)
        for path, entry in changed.items():
            node_id = int(path.removeprefix(BROKERS))
            if entry is None:
                brokers.pop(node_id, None)
            else:
                brokers[node_id] = BrokerImage.from_value(node_id, entry.value, entry.version)
        self._publish(changed, dataclasses.replace(self.image, brokers=brokers))

    def _update_topics(self, changed: Mapping[str, Entry | None]) -> None:
        if not changed:
            return
        topics = dict(self.image.topics)
        for path, entry in changed.items():
            name = path.removeprefix(TOPICS)
            if entry is None:
                topics.pop(name, None)
            else:
                topics[name] = TopicImage.from_value(name, entry.value, entry.version)
        self._publish(changed, self.image.with_topics(topics))

    def _publish(self, changed: Mapping[str, Entry | None], image: ClusterImage) -> None:
        before, self.image = self.image, image
        for listener in self._listeners:
            try:
                listener(before, image)
            except Exception:
                if not self._is_loaded:
                    raise  # a broker that cannot apply the stored metadata must not start
                self.failures += 1  # the change is durable, and the other listeners need it
                logger.exception("a change of the cluster metadata was not fully applied")
        self._note_reported(changed)
        for pending in self._pending:
            pending.remove_published(changed)
        waiting, self._waiting = self._waiting, []
        for each in waiting:
            if not each.done():
                each.set_result(None)

    def _note_reported(self, changed: Mapping[str, Entry | None]) -> None:
        for path, entry in changed.items():
            if entry is None:
                self._reported.pop(path, None)
            else:
                self._reported[path] = _identity(entry)

    async def _commit_topics(self, topics: Sequence[TopicImage], checks: Sequence[VersionCheck] = ()) -> None:
        await self._commit([_put(topic) for topic in topics], [*checks, *_checks_of_ids(topics)])

    async def _commit(self, changes: Sequence[EntryChange], others: Sequence[Operation] = ()) -> None:
        """Commit changes and wait until the image contains them. `others` are not about the image.

        Raises VersionConflictError.
        """
        pending = _PendingChanges({change.path: self._reported.get(change.path) for change in changes})
        self._pending.append(pending)
        try:
            await self._store.commit([*others, *changes])
            while not await pending.are_published(RECHECK_S):
                await self._recheck(pending)
        finally:
            self._pending.remove(pending)

    async def _recheck(self, pending: _PendingChanges) -> None:
        """Look for changes that the store does not report, because it has what it had before them.

        A topic may be created, and deleted by another broker, before the store reports its creation.
        """
        for path in pending.paths:
            try:
                found = (await self._store.load(path)).get(path)
            except SkylogError as error:
                logger.info("cannot look up %s now: %s", path, error)  # a new session reports everything
                return
            pending.remove_if_undone(path, found)

    # -- brokers

    async def register(self, broker: BrokerImage) -> None:
        """Register a broker for the lifetime of the session."""
        known = self.image.brokers.get(broker.node_id)
        version = known.version if known is not None else 0
        await self._commit([EntryChange(f"{BROKERS}{broker.node_id}", broker.to_value(), version, ephemeral=True)])

    async def remove_broker(self, broker: BrokerImage, checks: Sequence[VersionCheck] = ()) -> None:
        """Remove the registration of a broker whose process has ended. Raises VersionConflictError.

        The entry of its successor may have the same version, so the incarnation is checked, too.
        """
        incarnation = VersionCheck(f"{INCARNATIONS}{broker.node_id}", broker.incarnation)
        await self._commit([EntryChange(f"{BROKERS}{broker.node_id}", None, broker.version)], [*checks, incarnation])

    # -- topics

    def check_size(self, topic: TopicImage, before: TopicImage | None = None) -> None:
        """Raise INVALID_REQUEST if the entry of a topic is too large for the store, or may become that later.

        Elections and reassignments make it larger, and must never fail for that. So half the limit is left to them.
        A topic that is too large already may be changed as long as it does not grow: `before` is its present state.
        """
        if self._store.max_commit_bytes is None:
            return
        size, limit = _size(topic), self._store.max_commit_bytes // 2
        if size > limit and (before is None or size > _size(before)):
            reason = f"topic '{topic.name}' would take {size} bytes in the metadata store, of at most {limit}"
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"{reason}; give it fewer partitions, replicas or configs")

    async def create_topic(self, topic: TopicImage) -> TopicImage:
        """Commit a topic that `new_topic` has created. Raises KafkaError if the name is taken."""
        topic = dataclasses.replace(topic, has_id_entry=self._store.is_shared)
        others = [EntryChange(_id_path(topic), {"topic": topic.name}, 0)] if topic.has_id_entry else []
        try:
            await self._commit([_put(topic)], others)
        except VersionConflictError:
            raise topic_exists(topic.name) from None
        return dataclasses.replace(topic, version=1)

    async def change_topic(
        self, topic: TopicImage, decide: TopicDecision, checks: Sequence[VersionCheck] = ()
    ) -> TopicImage:
        """Commit what `decide` makes of the current state of a topic, and decide again if that state has changed.

        `decide` returns the same object to leave the topic as it is. It may change the list of `checks`. Raises
        KafkaError if the topic was deleted, and VersionConflictError if one of the `checks` fails.
        """
        while True:
            current = self._current(topic)
            changed = decide(current)
            if changed is current:
                return current
            try:
                await self._commit_topics([changed], checks)
            except VersionConflictError as error:
                if error.path not in (TOPICS + topic.name, _id_path(topic)):
                    raise
                await self._newer_than(current)
            else:
                return dataclasses.replace(changed, version=changed.version + 1)

    async def commit_topics(self, topics: Sequence[TopicImage], checks: Sequence[VersionCheck]) -> None:
        """Commit new states of topics together, each against the version it was derived from.

        Raises VersionConflictError if one of them is outdated or one of the `checks` fails.
        """
        await self._commit_topics(topics, checks)

    async def delete_topic(self, topic: TopicImage) -> None:
        while True:
            current = self._current(topic)
            others = [EntryChange(_id_path(current), None, 1)] if current.has_id_entry else []
            try:
                await self._commit([EntryChange(TOPICS + topic.name, None, current.version)], others)
            except VersionConflictError:
                await self._newer_than(current)
            else:
                return

    def _current(self, topic: TopicImage) -> TopicImage:
        current = self.image.topics.get(topic.name)
        if current is None or current.topic_id != topic.topic_id:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"topic '{topic.name}' was deleted")
        return current

    async def _newer_than(self, topic: TopicImage) -> None:
        """Wait until the image has another state of a topic."""
        while self.image.topics.get(topic.name) is topic:
            await self.next_image()

    async def begin_epochs(self) -> None:
        """Increment the leader epoch of every partition, so that after a crash readers detect truncated records."""
        topics = [
            dataclasses.replace(
                topic,
                partitions=tuple(
                    dataclasses.replace(each, leader_epoch=each.leader_epoch + 1) for each in topic.partitions
                ),
            )
            for topic in self.image.topics.values()
        ]
        if topics:
            await self._commit_topics(topics)

    # -- producer ids

    async def move_producer_ids(self, start: int) -> None:
        """Allocate producer ids from `start` on, unless they are beyond it: those below may be another cluster's."""
        while True:
            entry = (await self._store.load(PRODUCER_IDS)).get(PRODUCER_IDS)
            if entry is not None and entry.value["next"] >= start:
                return
            change = EntryChange(PRODUCER_IDS, {"next": start}, entry.version if entry else 0)
            try:
                await self._store.commit([change])
            except VersionConflictError:
                continue
            return

    def drop_producer_ids(self) -> None:
        """Forget the reserved producer ids: the next one comes from the store."""
        self._next_producer_id = self._producer_id_limit = 0

    async def next_producer_id(self) -> int:
        """Return an id that no producer has had before. Ids are reserved in blocks, so few calls use the store."""
        while self._next_producer_id >= self._producer_id_limit:
            entry = (await self._store.load(PRODUCER_IDS)).get(PRODUCER_IDS)
            start = entry.value["next"] if entry else 0
            change = EntryChange(PRODUCER_IDS, {"next": start + PRODUCER_ID_BLOCK}, entry.version if entry else 0)
            try:
                await self._store.commit([change])
            except VersionConflictError:
                continue  # another broker took that block
            self._next_producer_id, self._producer_id_limit = start, start + PRODUCER_ID_BLOCK
        producer_id = self._next_producer_id
        self._next_producer_id += 1
        return producer_id


_Identity = tuple[int, object]
"""The version of an entry, and the id or incarnation in it: an entry that is created again has the same versions."""


def _identity(entry: Entry) -> _Identity:
    return entry.version, entry.value.get("id", entry.value.get("incarnation"))


class _PendingChanges:
    """Changes of a running commit that the image does not contain yet. `before` is what it contains at these paths.

    The store reports changes of an entry in their order, but it may leave some out. So a change is published when
    anything else than before is reported.
    """

    def __init__(self, before: Mapping[str, _Identity | None]) -> None:
        self._before = dict(before)
        self._all_published: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    @property
    def paths(self) -> list[str]:
        return list(self._before)

    async def are_published(self, timeout_s: float) -> bool:
        """Return whether all changes are published within a time."""
        if not self._all_published.done():
            await asyncio.wait([self._all_published], timeout=timeout_s)
        return self._all_published.done()

    def remove_published(self, changed: Mapping[str, Entry | None]) -> None:
        for path in self._before.keys() & changed.keys():
            entry = changed[path]
            if (None if entry is None else _identity(entry)) != self._before[path]:
                self._remove(path)

    def remove_if_undone(self, path: str, stored: Entry | None) -> None:
        """Called with the entry in the store after the commit. If it is as before, nothing will be reported."""
        if path in self._before and (None if stored is None else _identity(stored)) == self._before[path]:
            self._remove(path)

    def _remove(self, path: str) -> None:
        del self._before[path]
        if not self._before and not self._all_published.done():
            self._all_published.set_result(None)


def _put(topic: TopicImage) -> EntryChange:
    return EntryChange(TOPICS + topic.name, topic.to_value(), topic.version)


def _size(topic: TopicImage) -> int:
    return len(orjson.dumps(topic.to_value()))


def _id_path(topic: TopicImage) -> str:
    return f"{TOPIC_IDS}{topic.topic_id}"


def _checks_of_ids(topics: Iterable[TopicImage]) -> list[VersionCheck]:
    """Return the checks that topics still exist: one of the same name may have been created with the same version."""
    return [VersionCheck(_id_path(topic), 1) for topic in topics if topic.has_id_entry]


def new_topic(name: str, assignment: Sequence[Sequence[int]], configs: Mapping[str, str]) -> TopicImage:
    """Return a new topic to commit. `assignment[i]` are the brokers of partition i; the first one is its leader."""
    return TopicImage(name, uuid4(), new_partitions(assignment), dict(configs), version=0)


def new_partitions(assignment: Sequence[Sequence[int]]) -> tuple[PartitionImage, ...]:
    return tuple(PartitionImage(ids[0], 0, tuple(ids), tuple(ids)) for ids in assignment)


def checks_of_elected(
    changed: Iterable[tuple[TopicImage, TopicImage]], brokers: Mapping[int, BrokerImage]
) -> list[VersionCheck]:
    """Return the checks that an election needs: the brokers that become leaders must not have started again.

    `changed` has topics before and after.
    """
    elected = {
        new.leader
        for before, now in changed
        for old, new in zip(before.partitions, now.partitions, strict=True)
        if new.leader not in (old.leader, NO_LEADER)
    }
    return [VersionCheck(f"{INCARNATIONS}{node}", brokers[node].incarnation) for node in sorted(elected)]


def topic_exists(name: str) -> KafkaError:
    return KafkaError(ErrorCode.TOPIC_ALREADY_EXISTS, f"topic '{name}' already exists")
