"""Changes to the cluster: the store first, then the image, and several brokers on one store."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from skylog.cluster import (
    BrokerImage,
    ClusterImage,
    ClusterMetadata,
    EmbeddedSession,
    EmbeddedStore,
    Entry,
    EntryChange,
    MetadataStore,
    SessionExpiredError,
    TopicImage,
    VersionConflictError,
)
from skylog.cluster import metadata as metadata_module
from skylog.cluster.metadata import INCARNATIONS, PRODUCER_ID_BLOCK, TOPICS, new_partitions, new_topic
from skylog.cluster.store import Operation
from skylog.errors import ErrorCode, KafkaError

NO_BROKERS = ClusterImage("c", 1, {})


def changing(tmp_path: Path, work: Callable[[ClusterMetadata], Awaitable[None]]) -> None:
    async def run() -> None:
        await work(await loaded(EmbeddedStore(tmp_path).open_session()))

    asyncio.run(run())


async def loaded(store: MetadataStore) -> ClusterMetadata:
    metadata = ClusterMetadata(store, NO_BROKERS)
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
        grown = replace(topic, partitions=topic.partitions + new_partitions([[1], [1]]))
        topic = await metadata.change_topic(topic, lambda _: grown)
        topic = await metadata.change_topic(topic, lambda now: replace(now, configs={"cleanup.policy": "compact"}))
        gone = await metadata.create_topic(new_topic("gone", [[1]], {}))
        await metadata.delete_topic(gone)
        again = await loaded(EmbeddedStore(tmp_path).open_session())
        assert again.image.topics == metadata.image.topics == {"a": topic}
        assert len(topic.partitions) == 3
        assert topic.configs == {"cleanup.policy": "compact"}
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


def test_a_change_to_a_topic_that_has_changed_meanwhile_is_decided_again(tmp_path: Path) -> None:
    async def work(metadata: ClusterMetadata) -> None:
        topic = await metadata.create_topic(new_topic("a", [[1]], {"x": "0"}))
        decided: list[str] = []

        def count(now: TopicImage) -> TopicImage:
            decided.append(now.configs["x"])
            return replace(now, configs={"x": str(int(now.configs["x"]) + 1)})

        await asyncio.gather(*(metadata.change_topic(topic, count) for _ in range(3)))
        assert metadata.image.topics["a"].configs == {"x": "3"}
        assert len(decided) > 3

    changing(tmp_path, work)


def test_a_topic_that_was_created_again_is_not_changed_in_place_of_its_predecessor(tmp_path: Path) -> None:
    async def work(metadata: ClusterMetadata) -> None:
        stale = await metadata.create_topic(new_topic("a", [[1]], {}))
        await metadata.delete_topic(stale)
        current = await metadata.create_topic(new_topic("a", [[1]], {}))
        changes: list[Awaitable[object]] = [
            metadata.change_topic(stale, lambda now: replace(now, configs={"retention.ms": "1"})),
            metadata.delete_topic(stale),
        ]
        for change in changes:
            with pytest.raises(KafkaError) as caught:
                await change
            assert caught.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert metadata.image.topics == {"a": current}

    changing(tmp_path, work)


@pytest.mark.parametrize("how", ["change", "commit", "delete"])
def test_a_late_change_of_a_topic_does_not_hit_its_successor_which_has_the_same_version(how: str) -> None:
    class LateSession(EmbeddedSession):
        """The topic is deleted and created again while a commit is on its way."""

        async def commit(self, operations: Sequence[Operation]) -> None:
            if operators:
                operator = operators.pop()
                await operator.delete_topic(operator.image.topics["a"])
                await operator.create_topic(new_topic("a", [[1]], {"is": "new"}))
            await super().commit(operations)

    operators: list[ClusterMetadata] = []

    async def run() -> None:
        store = EmbeddedStore(None)
        late = LateSession(store)
        store._sessions.append(late)
        metadata, operator = await loaded(late), await loaded(store.open_session())
        old = await operator.create_topic(new_topic("a", [[1]], {"is": "old"}))
        operators.append(operator)
        changed = replace(old, configs={"is": "changed"})
        if how == "change":
            with pytest.raises(KafkaError, match="was deleted"):
                await metadata.change_topic(old, lambda now: replace(now, configs=changed.configs))
        elif how == "commit":
            with pytest.raises(VersionConflictError):
                await metadata.commit_topics([changed], [])
        else:
            with pytest.raises(KafkaError, match="was deleted"):
                await metadata.delete_topic(old)
        new = metadata.image.topics["a"]
        assert new == operator.image.topics["a"]
        assert (new.version, new.configs) == (old.version, {"is": "new"})
        await metadata.change_topic(new, lambda now: replace(now, configs=changed.configs))
        assert operator.image.topics["a"].configs == changed.configs
        await operator.delete_topic(new)
        assert store.entries("") == {}

    asyncio.run(run())


def test_a_topic_of_a_former_version_without_an_entry_for_its_id_can_be_changed_and_deleted() -> None:
    async def run() -> None:
        store = EmbeddedStore(None)
        metadata = await loaded(session := store.open_session())
        await session.commit([EntryChange(f"{TOPICS}a", new_topic("a", [[1]], {}).to_value(), 0)])
        topic = metadata.image.topics["a"]
        topic = await metadata.change_topic(topic, lambda now: replace(now, configs={"retention.ms": "5"}))
        assert metadata.image.topics == {"a": topic}
        await metadata.delete_topic(topic)
        assert metadata.image.topics == {}

    asyncio.run(run())


def test_a_standalone_broker_has_no_entries_for_the_ids_of_topics(tmp_path: Path) -> None:
    """They would only make its file larger: nobody else changes its topics."""

    async def work(metadata: ClusterMetadata) -> None:
        await metadata.create_topic(new_topic("a", [[1]], {}))
        assert list(await metadata._store.load("")) == [f"{TOPICS}a"]

    changing(tmp_path, work)


def test_a_late_removal_of_a_broker_does_not_hit_its_next_incarnation(tmp_path: Path) -> None:
    """The registrations of both have the same version."""

    async def work(metadata: ClusterMetadata) -> None:
        store, registered = metadata._store, []
        for incarnation in (1, 2):
            await store.commit([EntryChange(f"{INCARNATIONS}1", {}, incarnation - 1)])
            await metadata.register(BrokerImage(1, "localhost", 9092, incarnation=incarnation))
            registered.append(metadata.image.brokers[1])
            if incarnation == 1:
                await metadata.remove_broker(registered[0])
                assert metadata.image.brokers == {}
        assert registered[0].version == registered[1].version
        with pytest.raises(VersionConflictError):
            await metadata.remove_broker(registered[0])
        assert metadata.image.brokers == {1: registered[1]}

    changing(tmp_path, work)


def unable(_before: ClusterImage, _now: ClusterImage) -> None:
    raise OSError("disk full")


def test_a_listener_that_fails_is_counted_and_the_change_holds(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def work(metadata: ClusterMetadata) -> None:
        seen: list[set[str]] = []
        metadata.listen(unable)
        metadata.listen(lambda _, now: seen.append(set(now.topics)))
        topic = await metadata.create_topic(new_topic("a", [[1]], {}))
        assert metadata.failures == 1
        topic = await metadata.change_topic(topic, lambda now: replace(now, configs={"retention.ms": "5"}))
        assert metadata.failures == 2
        assert metadata.image.topics == {"a": topic}
        assert (await loaded(EmbeddedStore(tmp_path).open_session())).image.topics == {"a": topic}
        await metadata.delete_topic(topic)
        assert metadata.failures == 3
        assert seen == [{"a"}, {"a"}, set()]

    with caplog.at_level(logging.ERROR, "skylog.cluster.metadata"):
        changing(tmp_path, work)
    assert [str(record.exc_info[1]) for record in caplog.records if record.exc_info] == ["disk full"] * 3


def test_a_listener_that_fails_on_the_stored_state_fails_the_load(tmp_path: Path) -> None:
    async def work(metadata: ClusterMetadata) -> None:
        await metadata.create_topic(new_topic("a", [[1]], {}))
        starting = ClusterMetadata(EmbeddedStore(tmp_path).open_session(), NO_BROKERS)
        starting.listen(unable)
        with pytest.raises(OSError, match="disk full"):
            await starting.load()
        assert starting.failures == 0

    changing(tmp_path, work)


def test_a_start_after_a_crash_raises_the_epoch_of_every_partition(tmp_path: Path) -> None:
    async def work(metadata: ClusterMetadata) -> None:
        await metadata.create_topic(new_topic("a", [[1], [1]], {}))
        await metadata.create_topic(new_topic("b", [[1]], {}))
        for epoch in (1, 2):
            metadata = await loaded(EmbeddedStore(tmp_path).open_session())
            await metadata.begin_epochs()
            for image in (metadata.image, (await loaded(EmbeddedStore(tmp_path).open_session())).image):
                epochs = [[each.leader_epoch for each in topic.partitions] for topic in image.topics.values()]
                assert sorted(epochs) == [[epoch], [epoch, epoch]]

    changing(tmp_path, work)


def test_a_broker_that_registers_is_seen_and_an_earlier_address_replaced(tmp_path: Path) -> None:
    async def work(metadata: ClusterMetadata) -> None:
        await metadata.register(BrokerImage(1, "a", 9092))
        await metadata.register(BrokerImage(2, "b", 9092))
        await metadata.register(BrokerImage(1, "a", 9093))
        assert {node: each.port for node, each in metadata.image.brokers.items()} == {1: 9093, 2: 9092}

    changing(tmp_path, work)


def test_brokers_of_one_store_see_the_same_cluster(tmp_path: Path) -> None:
    async def run() -> None:
        store = EmbeddedStore(tmp_path)
        sessions = [store.open_session() for _ in range(2)]
        first, second = [await loaded(session) for session in sessions]
        await first.register(BrokerImage(1, "a", 9092))
        await second.register(BrokerImage(2, "b", 9092))
        topic = await first.create_topic(new_topic("t", [[1, 2]], {}))
        assert second.image.topics == {"t": topic}
        assert set(first.image.brokers) == set(second.image.brokers) == {1, 2}
        await second.delete_topic(topic)
        assert first.image.topics == {}
        await sessions[0].expire()
        assert set(second.image.brokers) == {2}

    asyncio.run(run())


class HeldSession(EmbeddedSession):
    """A session that holds back reports. It then reports only the last state of each entry."""

    def __init__(self, store: EmbeddedStore) -> None:
        super().__init__(store)
        self._held: dict[str, Entry | None] | None = None
        store._sessions.append(self)

    def hold(self) -> None:
        self._held = {}

    def release(self) -> None:
        held, self._held = self._held, None
        super().publish(held or {})

    def publish(self, changed: Mapping[str, Entry | None]) -> None:
        if self._held is None:
            super().publish(changed)
        else:
            self._held |= changed


def with_a_late_broker(test: Callable[[ClusterMetadata, HeldSession, ClusterMetadata], Awaitable[None]]) -> None:
    """Run a test with a broker whose reports can be held back, and another one."""

    async def run() -> None:
        store = EmbeddedStore(None)
        session = HeldSession(store)
        async with asyncio.timeout(10):
            await test(await loaded(session), session, await loaded(store.open_session()))

    asyncio.run(run())


def test_a_topic_that_is_created_again_before_its_deletion_is_seen_does_not_hold_up_the_deletion(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Both topics have version 1."""
    monkeypatch.setattr(metadata_module, "RECHECK_S", 60)

    async def test(late: ClusterMetadata, session: HeldSession, other: ClusterMetadata) -> None:
        topic = await late.create_topic(new_topic("a", [[1]], {}))
        session.hold()
        deletion = asyncio.ensure_future(late.delete_topic(topic))
        await other.next_image()
        again = await other.create_topic(new_topic("a", [[1]], {}))
        assert not deletion.done()
        session.release()
        await deletion
        assert late.image.topics == {"a": again}

    with_a_late_broker(test)


@pytest.mark.parametrize("is_reported", [True, False])
def test_a_topic_that_is_deleted_before_it_is_seen_does_not_hold_up_its_creation(
    monkeypatch: pytest.MonkeyPatch, is_reported: bool
) -> None:
    """The store may report the deletion of a topic that this broker does not know, or nothing at all."""
    monkeypatch.setattr(metadata_module, "RECHECK_S", 0.05)

    async def test(late: ClusterMetadata, session: HeldSession, other: ClusterMetadata) -> None:
        session.hold()
        creation = asyncio.ensure_future(late.create_topic(new_topic("a", [[1]], {})))
        await other.next_image()
        await asyncio.sleep(0.2)
        assert not creation.done(), "the image does not contain it yet"
        await other.delete_topic(other.image.topics["a"])
        if is_reported:
            session.release()
        await creation
        assert late.image.topics == {}

    with_a_late_broker(test)


def test_a_commit_whose_entries_cannot_be_looked_up_waits_for_the_report(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metadata_module, "RECHECK_S", 0.05)

    async def no_session(_: str) -> dict[str, Entry]:
        raise SessionExpiredError("expired")

    async def test(late: ClusterMetadata, session: HeldSession, _: ClusterMetadata) -> None:
        session.hold()
        monkeypatch.setattr(session, "load", no_session)
        creation = asyncio.ensure_future(late.create_topic(new_topic("a", [[1]], {})))
        await asyncio.sleep(0.2)
        assert not creation.done()
        session.release()
        assert late.image.topics == {"a": await creation}

    with_a_late_broker(test)


def test_brokers_of_one_store_never_allocate_the_same_producer_id(tmp_path: Path) -> None:
    async def work(_: ClusterMetadata) -> None:
        store = EmbeddedStore(tmp_path).open_session()
        brokers = [ClusterMetadata(store, NO_BROKERS) for _ in range(3)]
        rounds = PRODUCER_ID_BLOCK // 2 + 10
        given = await asyncio.gather(*(broker.next_producer_id() for _ in range(rounds) for broker in brokers))
        # Unused ids of reserved blocks are lost.
        after = ClusterMetadata(EmbeddedStore(tmp_path).open_session(), NO_BROKERS)
        given += [await after.next_producer_id()]
        assert len(set(given)) == len(given) == 3 * rounds + 1
        assert max(given) == given[-1]

    changing(tmp_path, work)
