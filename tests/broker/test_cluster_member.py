"""How a broker joins its cluster: what it may still be after it has lost its session, or its data."""

from __future__ import annotations

import asyncio
import logging
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from skylog.broker import ServerConfig, cluster_member, deleted_logs, standalone_broker
from skylog.broker.cluster_member import ClusterMember
from skylog.cluster import ClusterMetadata, EmbeddedStore, Entry, EntryChange, SessionExpiredError, metadata
from skylog.cluster.client_quotas import QUOTAS
from skylog.cluster.image import NO_LEADER
from skylog.cluster.metadata import BROKERS, CONTROLLER_EPOCH, INCARNATIONS, TOPICS
from skylog.cluster.store import Operation, Watcher
from skylog.errors import ErrorCode, KafkaError, SkylogError
from skylog.limited_logger import LimitedLogger
from skylog.net.peer import Peer
from skylog.protocol.describe_cluster import DescribeClusterRequest
from skylog.protocol.metadata import MetadataRequest
from skylog.storage.log_dir import INCARNATION

from .loop_cluster import GatedSession, LoopCluster, soon


def test_a_broker_whose_session_expires_keeps_its_partitions(tmp_path: Path) -> None:
    """Also in the process that was started with an empty data directory."""

    async def run() -> None:
        async with LoopCluster(tmp_path) as cluster:
            await cluster.start(1)
            await cluster.create("t", [1])
            await cluster.append(1, b"a")
            await cluster.expire(1)
            await soon(lambda: cluster.partition(1).is_leader, "the leader")
            assert cluster.image().in_sync_replicas == (1,)
            await cluster.append(1, b"b")

    asyncio.run(run())


def test_a_broker_that_crashes_at_its_start_is_still_one_that_has_lost_its_data(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise the second start would find its own empty directory, and lead with that (KAFKA-14139)."""

    async def run() -> None:
        async with LoopCluster(tmp_path) as cluster:
            await cluster.start(1, 2)
            await cluster.create("t", [1, 2])
            await cluster.append(1, b"acknowledged")
            await cluster.crash(2)
            await cluster.until_in_sync(1)
            await cluster.crash(1)
            shutil.rmtree(cluster.data_dir(1))

            async def crash(*_: object, **__: object) -> None:
                raise SkylogError("killed")

            with monkeypatch.context() as patch:
                patch.setattr(ClusterMember, "_resign", crash)
                with pytest.raises(SkylogError):
                    await cluster.start(1)
            await cluster.start(1, 2)
            assert (cluster.image().leader, cluster.image().in_sync_replicas) == (NO_LEADER, ())
            assert cluster.values(2) == [b"acknowledged"]
            assert not cluster.partition(1).is_leader

    asyncio.run(run())


def test_a_broker_with_a_former_data_directory_does_not_lead_with_less(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its disk was replaced, and put back later. What was acknowledged meanwhile is on the other one."""

    async def run() -> None:
        async with LoopCluster(tmp_path) as cluster:
            await cluster.start(1, 2)
            await cluster.create("t", [1, 2])
            await cluster.append(1, b"a")
            await cluster.stop(1)
            cluster.data_dir(1).rename(tmp_path / "former")
            await cluster.start(1)
            await cluster.until_in_sync(1, 2)
            await cluster.crash(2)
            await cluster.until_in_sync(1)
            await cluster.append(1, b"acknowledged")
            await cluster.stop(1)
            shutil.rmtree(cluster.data_dir(1))
            (tmp_path / "former").rename(cluster.data_dir(1))

            async def crash(*_: object, **__: object) -> None:
                raise SkylogError("killed")

            with monkeypatch.context() as patch:
                patch.setattr(ClusterMember, "_resign", crash)
                with pytest.raises(SkylogError):
                    await cluster.start(1)
            await cluster.start(1)
            assert (cluster.image().leader, cluster.image().in_sync_replicas) == (NO_LEADER, ())

    asyncio.run(run())


def test_a_broker_with_an_older_copy_of_its_data_directory_does_not_lead_with_less(tmp_path: Path) -> None:
    """It was restored from a backup. A copy of the last incarnation cannot be told from the directory itself."""

    async def run() -> None:
        async with LoopCluster(tmp_path) as cluster:
            await cluster.start(1)
            await cluster.create("t", [1])
            await cluster.append(1, b"a")
            await cluster.stop(1)
            shutil.copytree(cluster.data_dir(1), tmp_path / "backup")
            await cluster.start(1)
            await soon(lambda: cluster.partition(1).is_leader, "the leader")
            await cluster.append(1, b"acknowledged")
            await cluster.stop(1)
            cluster.data_dir(1).rename(tmp_path / "moved")
            (tmp_path / "backup").rename(cluster.data_dir(1))
            await cluster.start(1)
            assert (cluster.image().leader, cluster.image().in_sync_replicas) == (NO_LEADER, ())
            await cluster.stop(1)
            cluster.data_dir(1).rename(tmp_path / "backup")
            (tmp_path / "moved").rename(cluster.data_dir(1))
            await cluster.start(1)
            assert (cluster.image().leader, cluster.image().in_sync_replicas) == (NO_LEADER, ())

    asyncio.run(run())


def test_a_broker_with_a_moved_data_directory_continues(tmp_path: Path) -> None:
    async def run() -> None:
        async with LoopCluster(tmp_path) as cluster:
            await cluster.start(1)
            await cluster.create("t", [1])
            await cluster.append(1, b"a")
            await cluster.expire(1)
            await cluster.stop(1)
            cluster.data_dir(1).rename(tmp_path / "moved")
            shutil.copytree(tmp_path / "moved", cluster.data_dir(1))
            await cluster.start(1)
            await soon(lambda: cluster.partition(1).is_leader, "the leader")
            assert cluster.values(1) == [b"a"]

    asyncio.run(run())


@pytest.mark.parametrize("is_copy", [False, True], ids=["another directory", "a copy of the directory"])
def test_a_broker_that_was_replaced_while_its_session_was_lost_does_not_lead_with_less(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_copy: bool
) -> None:
    """It stays away while the other process is there, and joins without its logs afterwards."""
    monkeypatch.setattr(cluster_member, "RENEW_INTERVAL_S", 0.01)
    monkeypatch.setattr(cluster_member, "STALE_PATIENCE_S", 0.05)

    async def run() -> None:
        async with LoopCluster(tmp_path) as cluster, LoopCluster(tmp_path / "replacement") as replacement:
            replacement.store = cluster.store
            await cluster.start(1, 2)
            await cluster.create("t", [1, 2])
            await cluster.append(1, b"a")
            with monkeypatch.context() as patch:
                away = asyncio.Event()
                patch.setattr(cluster.membership(1).member._store, "renew", away.wait)
                await cluster.sessions[1].expire()
                if is_copy:
                    shutil.copytree(cluster.data_dir(1), replacement.data_dir(1))
                await replacement.start(1)
                await replacement.until_in_sync(1, 2)
            away.set()
            lost = cluster.sessions[1]
            await soon(lambda: cluster.sessions[1] is not lost, "the session of the broker that was replaced")
            second = cluster.sessions[1]
            await soon(lambda: cluster.sessions[1] is not second, "its next attempt")
            assert replacement.brokers[1].replicas.may_lead
            assert not cluster.brokers[1].replicas.may_lead
            await cluster.crash(2)
            await replacement.until_in_sync(1)
            await replacement.append(1, b"acknowledged")
            await replacement.stop(1)
            await soon(lambda: cluster.brokers[1].replicas.may_lead, "the broker that was replaced")
            assert (cluster.image().leader, cluster.image().in_sync_replicas) == (NO_LEADER, ())

    asyncio.run(run())


def test_a_broker_keeps_its_partitions_if_it_does_not_learn_that_its_incarnation_was_committed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next session finds an incarnation that the broker does not know, but that follows its own."""
    monkeypatch.setattr(cluster_member, "RENEW_INTERVAL_S", 0.01)
    commit, lost = GatedSession.commit, 0

    async def commit_silently(session: GatedSession, operations: Sequence[Operation]) -> None:
        nonlocal lost
        await commit(session, operations)
        if lost < 2 and any(operation.path.startswith(INCARNATIONS) for operation in operations):
            lost += 1
            raise SessionExpiredError("no answer")

    async def run() -> None:
        async with LoopCluster(tmp_path) as cluster:
            await cluster.start(1)
            await cluster.create("t", [1])
            await cluster.append(1, b"a")
            monkeypatch.setattr(GatedSession, "commit", commit_silently)
            await cluster.expire(1)
            await soon(lambda: cluster.partition(1).is_leader, "the leader")
            assert (lost, cluster.membership(1).member.incarnation) == (2, 4)

    asyncio.run(run())


def test_a_broker_with_an_empty_data_directory_can_join_the_in_sync_set_later(tmp_path: Path) -> None:
    async def run() -> None:
        async with LoopCluster(tmp_path) as cluster:
            await cluster.start(1, 2)
            await cluster.create("t", [1, 2])
            await cluster.append(1, b"a")
            await cluster.crash(2)
            shutil.rmtree(cluster.data_dir(2))
            await cluster.start(2)
            await cluster.until_in_sync(1, 2)
            assert cluster.values(2) == [b"a"]
            await cluster.expire(2)
            await cluster.until_in_sync(1, 2)

    asyncio.run(run())


def test_a_store_that_has_lost_everything_does_not_make_a_broker_remove_its_logs(tmp_path: Path) -> None:
    """The broker leads nothing until the store is restored, then it continues."""

    async def run() -> None:
        async with LoopCluster(tmp_path) as cluster:
            await cluster.start(1)
            await cluster.create("t", [1])
            await cluster.append(1, b"a")
            full, cluster.store = cluster.store, EmbeddedStore(None)
            refused = cluster.sessions[1]
            await refused.expire()
            await soon(lambda: cluster.sessions[1] is not refused, "a session with the empty store")
            first = cluster.sessions[1]
            await soon(lambda: cluster.sessions[1] is not first, "another session with the empty store")
            assert cluster.values(1) == [b"a"]
            assert not cluster.partition(1).is_leader
            cluster.store = full
            await soon(lambda: cluster.partition(1).is_leader, "the leader")
            assert cluster.values(1) == [b"a"]

    asyncio.run(run())


NEWER = {f"{INCARNATIONS}1", CONTROLLER_EPOCH}


async def remove_by_hand(cluster: LoopCluster, what: str) -> dict[str, Entry]:
    """Remove what the store has below a path, the topics first, as tools do. Return what a backup would have."""
    operator = cluster.store.open_session()
    entries = await operator.load("")
    backup = {path: entry for path, entry in entries.items() if path not in cluster.store._owners}
    paths = sorted((path for path in entries if path.startswith(what)), key=lambda path: not path.startswith(TOPICS))
    for path in paths:
        await operator.commit([EntryChange(path, None, entries[path].version)])
    await operator.close()
    return backup


@pytest.mark.parametrize("restarts", [False, True])
@pytest.mark.parametrize("what", ["/", TOPICS])
def test_a_store_whose_entries_are_removed_by_hand_does_not_cost_the_logs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, what: str, restarts: bool
) -> None:
    """To the brokers it looks as if all topics were deleted. When the store is restored, they have all messages."""
    monkeypatch.setattr(deleted_logs, "KEPT_S", 0.05)
    monkeypatch.setattr(deleted_logs, "limited_logger", LimitedLogger(logging.getLogger(), 0.0))

    async def run() -> None:
        async with LoopCluster(tmp_path) as cluster:
            await cluster.start(1)
            await cluster.create("t", [1], [1])
            await cluster.append(1, b"a")
            backup = await remove_by_hand(cluster, what)
            await soon(lambda: "logs of deleted topics are not removed" in caplog.text, "a check of the store")
            assert cluster.find(1) is None
            if restarts:
                await cluster.crash(1)
                if what == TOPICS:
                    caplog.clear()
                    await cluster.start(1)
                    await soon(lambda: "logs of deleted topics are not removed" in caplog.text, "another check")
            former, cluster.store = cluster.store, EmbeddedStore(None)
            cluster.store._entries = {
                **backup,
                **{path: former.entries(path)[path] for path in NEWER & former._entries.keys()},
            }
            if 1 not in cluster.brokers:
                await cluster.start(1)
            elif what == TOPICS:
                await cluster.sessions[1].expire()
            await soon(lambda: (found := cluster.find(1)) is not None and found.is_leader, "the leader")
            assert cluster.values(1) == [b"a"]
            await cluster.append(1, b"b")
            assert cluster.values(1) == [b"a", b"b"]

    asyncio.run(run())


def test_the_logs_of_a_deleted_topic_are_removed_a_while_later(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deleted_logs, "KEPT_S", 0.05)

    async def run() -> None:
        async with LoopCluster(tmp_path) as cluster:
            await cluster.start(1)
            topic = await cluster.create("t", [1])
            await cluster.append(1, b"a")
            await cluster.brokers[1].topics.delete(topic)
            await cluster.create("t", [1])
            assert cluster.values(1) == []
            await soon(lambda: not list(cluster.data_dir(1).glob("t-0.*")), "the end of the folder")
            assert cluster.values(1) == []

    asyncio.run(run())


def test_a_broker_of_a_cluster_does_not_found_another_one(tmp_path: Path) -> None:
    """The address of its store is wrong, or the store was lost. Others may find it as it was."""

    async def run() -> None:
        async with LoopCluster(tmp_path) as cluster:
            await cluster.start(1)
            await cluster.create("t", [1])
            await cluster.stop(1)
            cluster.store = EmbeddedStore(None)
            with pytest.raises(SkylogError, match="has no cluster"):
                await cluster.start(1)
            assert not cluster.store.entries("")
            assert (cluster.data_dir(1) / "t-0").exists()

    asyncio.run(run())


def test_a_broker_of_a_cluster_refuses_logs_of_unknown_origin(tmp_path: Path) -> None:
    async def run() -> None:
        async with LoopCluster(tmp_path) as cluster:
            await cluster.start(1)
            await cluster.create("t", [1])
            await cluster.append(1, b"a")
            await cluster.stop(1)
            (cluster.data_dir(1) / "meta.properties").unlink()
            with pytest.raises(SkylogError, match="1 logs with messages, such as t-0"):
                await cluster.start(1)
            assert (cluster.data_dir(1) / "t-0").exists()

    asyncio.run(run())


def test_a_broker_of_a_cluster_refuses_the_directory_of_a_standalone_one(tmp_path: Path) -> None:
    """Also if it was the directory of the same broker before that, and has the id of the cluster."""

    async def run() -> None:
        async with LoopCluster(tmp_path) as cluster:
            await cluster.start(1)
            await cluster.stop(1)
            (cluster.data_dir(1) / INCARNATION).unlink()  # otherwise the standalone broker would refuse it
            alone = standalone_broker(cluster.data_dir(1), ServerConfig.parse({"node.id": "1"}))
            await alone.start("127.0.0.1", 0)
            await alone.topics.create("t", [[1]], {})
            await alone.stop()
            with pytest.raises(SkylogError, match="standalone"):
                await cluster.start(1)
            assert (cluster.data_dir(1) / "t-0").exists()

    asyncio.run(run())


def test_a_broker_joins_again_whatever_went_wrong_at_its_first_attempt(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def run() -> None:
        async with LoopCluster(tmp_path) as cluster:
            await cluster.start(1)
            store = cluster.membership(1).member._store
            renew, attempts = store.renew, 0

            async def renew_at_last() -> None:
                nonlocal attempts
                attempts += 1
                if attempts == 1:
                    raise ZeroDivisionError
                await renew()

            monkeypatch.setattr(cluster_member, "RENEW_INTERVAL_S", 0.01)
            monkeypatch.setattr(store, "renew", renew_at_last)
            await cluster.expire(1)
            assert attempts == 2

    asyncio.run(run())


def test_a_broker_stops_if_the_store_goes_away_after_its_last_commit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The commit is answered, but the store never reports the change."""
    monkeypatch.setattr(cluster_member, "HAND_OVER_S", 0.2)

    async def run() -> None:
        async with LoopCluster(tmp_path) as cluster:
            await cluster.start(1)
            monkeypatch.setattr(cluster.sessions[1], "commit", answered_only)
            async with asyncio.timeout(20):
                await cluster.stop(1)

    asyncio.run(run())


def test_a_session_that_expires_while_a_broker_joins_again_does_not_keep_it_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its registration was committed, but the session expired before the store reported it."""

    async def run() -> None:
        async with LoopCluster(tmp_path) as cluster:
            await cluster.start(1)
            first = cluster.sessions[1]
            with monkeypatch.context() as patch:
                patch.setattr(ClusterMetadata, "register", never_reported)
                await first.expire()
                await soon(lambda: cluster.membership(1).member.incarnation > 1, "the second incarnation")
                await asyncio.sleep(0.05)
            await cluster.sessions[1].expire()
            await soon(lambda: 1 in cluster.brokers[1].metadata.image.brokers, "the registration")

    asyncio.run(run())


def test_a_broker_says_at_once_that_another_one_has_its_id(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It waits, because the other one may be a former process whose session has not expired yet."""
    monkeypatch.setattr(cluster_member, "RENEW_INTERVAL_S", 0.01)
    monkeypatch.setattr(cluster_member, "STALE_PATIENCE_S", 0.2)

    async def run() -> None:
        async with LoopCluster(tmp_path) as cluster, LoopCluster(tmp_path / "second") as second:
            second.store = cluster.store
            await cluster.start(1)
            owner = f"the broker at 127.0.0.1:{cluster.brokers[1].endpoints.port}"
            with pytest.raises(SkylogError, match=f"node.id=1 is in use by {owner}; choose another"):
                await second.start(1)
            assert caplog.text.count(f"{owner} has this node.id; waiting up to 0.2 s for it to leave") == 1

    asyncio.run(run())


@pytest.mark.parametrize("step", [INCARNATIONS, QUOTAS, TOPICS, f"after {TOPICS}", BROKERS, f"after {BROKERS}"])
def test_a_session_that_expires_while_a_broker_starts_does_not_keep_it_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    """It would have to be started again, or wait for ever for a change that no session reports."""
    monkeypatch.setattr(cluster_member, "RENEW_INTERVAL_S", 0.01)
    commit, watch = GatedSession.commit, GatedSession.watch
    path = step.removeprefix("after ")
    expired: list[GatedSession] = []

    async def expire(session: GatedSession) -> None:
        if not expired:
            expired.append(session)
            await session.expire()

    async def commit_and_expire(session: GatedSession, operations: Sequence[Operation]) -> None:
        is_meant = any(operation.path.startswith(path) for operation in operations)
        if is_meant and path == step:
            await expire(session)
        await commit(session, operations)
        if is_meant:
            await expire(session)

    async def watch_and_expire(session: GatedSession, prefix: str, watcher: Watcher) -> None:
        if prefix == path == QUOTAS:
            await expire(session)
        await watch(session, prefix, watcher)

    async def run() -> None:
        async with LoopCluster(tmp_path) as cluster:
            await cluster.start(1, 2)
            await cluster.create("t", [2, 1])
            await cluster.append(2, b"a")
            await cluster.crash(2)
            await cluster.until_in_sync(1)
            await cluster.append(1, b"b")
            await cluster.crash(1)
            with monkeypatch.context() as patch:
                patch.setattr(GatedSession, "commit", commit_and_expire)
                patch.setattr(GatedSession, "watch", watch_and_expire)
                async with asyncio.timeout(20):
                    await cluster.start(1)
            assert len(expired) == 1
            await soon(lambda: cluster.partition(1).is_leader, "the leader")
            await cluster.start(2)
            await cluster.until_in_sync(1, 2)
            assert cluster.values(1) == cluster.values(2) == [b"a", b"b"]

    asyncio.run(run())


def test_a_broker_that_is_not_registered_again_yet_still_tells_clients_where_to_ask(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a response without brokers librdkafka would have none left, for ever."""

    async def run() -> None:
        async with LoopCluster(tmp_path) as cluster:
            await cluster.start(1)
            broker = cluster.brokers[1]
            peer = await Peer.connect("127.0.0.1", broker.endpoints.port, client_id="client")
            with monkeypatch.context() as patch:
                patch.setattr(ClusterMetadata, "register", never_reported)
                await cluster.sessions[1].expire()
                await soon(lambda: not broker.metadata.image.brokers, "an image without brokers")
                for request, version in ((MetadataRequest(topics=None), 12), (DescribeClusterRequest(), 0)):
                    response: Any = await peer.ask(request, version)
                    found = [each.port for each in response.brokers]
                    assert found == [broker.endpoints.port]
            peer.close()
            await cluster.sessions[1].expire()
            await soon(lambda: 1 in broker.metadata.image.brokers, "the registration")

    asyncio.run(run())


def test_a_broker_that_cannot_give_up_what_it_was_does_not_join(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would lead with a log whose end it may have lost."""
    commit = GatedSession.commit

    async def refuse(session: GatedSession, operations: Sequence[Operation]) -> None:
        if any(operation.path.startswith(TOPICS) for operation in operations):
            raise KafkaError(ErrorCode.INVALID_REQUEST, "the change is too large")
        await commit(session, operations)

    async def run() -> None:
        async with LoopCluster(tmp_path) as cluster:
            await cluster.start(1)
            await cluster.create("t", [1])
            await cluster.append(1, b"a")
            await cluster.crash(1)
            with monkeypatch.context() as patch:
                patch.setattr(GatedSession, "commit", refuse)
                with pytest.raises(KafkaError, match="too large"):
                    await cluster.start(1)
            await cluster.start(1)
            await soon(lambda: cluster.partition(1).is_leader, "the leader")

    asyncio.run(run())


def test_a_registration_that_was_removed_before_the_broker_has_seen_it_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(metadata, "RECHECK_S", 0.01)
    commit, path = GatedSession.commit, f"{BROKERS}2"
    removed: list[GatedSession] = []

    async def commit_and_remove(session: GatedSession, operations: Sequence[Operation]) -> None:
        if path not in [operation.path for operation in operations] or removed:
            await commit(session, operations)
            return
        removed.append(session)
        with monkeypatch.context() as patch:
            patch.setattr(session, "publish", lambda _: None)
            await commit(session, operations)
            await commit(session, [EntryChange(path, None, 1)])

    async def run() -> None:
        async with LoopCluster(tmp_path) as cluster:
            await cluster.start(1)
            monkeypatch.setattr(GatedSession, "commit", commit_and_remove)
            await cluster.start(2)
            await soon(lambda: 2 in cluster.brokers[1].metadata.image.brokers, "the registration")
            await soon(lambda: cluster.brokers[2].replicas.may_lead, "the broker")
            assert cluster.brokers[2].metadata.image.brokers[2].incarnation > 1
            assert len(removed) == 1

    asyncio.run(run())


def test_a_broker_whose_registration_another_process_has_replaced_joins_again(tmp_path: Path) -> None:
    async def run() -> None:
        async with LoopCluster(tmp_path) as cluster:
            await cluster.start(1)
            await cluster.create("t", [1])
            member, path = cluster.membership(1).member, f"{BROKERS}1"
            entry = cluster.store.entries(path)[path]
            value = {**entry.value, "incarnation": entry.value["incarnation"] + 1}
            other = cluster.store.open_session()
            await other.commit([EntryChange(path, None, entry.version), EntryChange(path, value, 0, ephemeral=True)])
            assert member.expirations == 1
            await soon(lambda: cluster.partition(1).is_leader, "the leader")
            assert cluster.brokers[1].metadata.image.brokers[1].incarnation == member.incarnation > 1

    asyncio.run(run())


async def answered_only(_: object) -> None:
    """Accept a commit without a report of it."""


async def never_reported(*_: object) -> None:
    await asyncio.get_running_loop().create_future()
