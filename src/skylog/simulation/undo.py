"""Undoes mends of bugs that others shipped, one at a time, to show that tests and simulation would notice.

Each function takes a patcher: `pytest.MonkeyPatch`, or `seams.Patches` of a run.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from skylog.broker import cluster_member
from skylog.broker.partition import Partition
from skylog.broker.replication import fetcher, follower_sessions, in_sync_sets
from skylog.broker.replication.fetcher import ReplicaFetcher
from skylog.broker.replication.follower_sessions import FollowerSession
from skylog.broker.replication.in_sync_sets import InSyncSets
from skylog.cluster import (
    ClusterMetadata,
    EntryChange,
    PartitionImage,
    TopicImage,
    VersionCheck,
    VersionConflictError,
    elections,
)
from skylog.cluster.metadata import CONTROLLER_EPOCH
from skylog.model import NO_EPOCH
from skylog.replication.divergence import EpochEnd, divergence
from skylog.storage import Log
from skylog.storage.leader_epochs import LeaderEpochs


class Patch(Protocol):
    """Replaces an attribute until the end of the test or the run."""

    def setattr(self, target: Any, name: str, value: Any) -> None: ...


# -- replication


def truncate_to_the_watermark_of_each_new_follower(patch: Patch) -> None:
    follow = Partition.follow

    def follow_and_truncate(partition: Partition, image: PartitionImage) -> None:
        if image.leader_epoch != partition.leader_epoch:
            partition.log.truncate_to(partition.high_watermark, 0)
        follow(partition, image)

    patch.setattr(Partition, "follow", follow_and_truncate)


def record_each_position(patch: Patch) -> None:
    record = FollowerSession._record

    def record_first(session: FollowerSession, slot: Any, partition: Partition, row: Any, incarnation: int) -> None:
        assert partition.leading is not None
        progress = partition.leading.followers[session._node_id]
        progress.fetched(incarnation, row.offset, row.log_start_offset, partition.log.log_end_offset, 0.0)
        partition.update_watermark()
        record(session, slot, partition, row, incarnation)

    patch.setattr(FollowerSession, "_record", record_first)


def raise_the_watermark_first(patch: Patch) -> None:
    apply = ReplicaFetcher._apply

    def apply_watermark_first(fetcher: ReplicaFetcher, followed: Any, answer: Any, now_ms: int) -> None:
        followed.partition.follow_watermarks(answer.high_watermark, answer.log_start_offset)
        apply(fetcher, followed, answer, now_ms)

    patch.setattr(ReplicaFetcher, "_apply", apply_watermark_first)


def keep_the_watermark_of_a_log_that_begins_again(patch: Patch) -> None:
    restart_at = Log.restart_at

    def restart(log: Log, offset: int, now_ms: int) -> list[Path]:
        before = log.high_watermark
        paths = restart_at(log, offset, now_ms)
        log.high_watermark = before
        return paths

    patch.setattr(Log, "restart_at", restart)


def read_to_the_end(patch: Patch) -> None:
    def read(partition: Partition, offset: int, max_bytes: int, at_least_one: bool, _: bool = False) -> Any:
        return partition.log.read_checked(offset, max_bytes, at_least_one)

    patch.setattr(Partition, "read", read)


def append_to_the_truncated_file(patch: Patch) -> None:
    patch.setattr(Log, "roll", lambda *_: False)


def never_end_a_change(patch: Patch) -> None:
    patch.setattr(in_sync_sets._Change, "settle", lambda _: None)


def count_a_replica_when_it_is_in_the_store(patch: Patch) -> None:
    patch.setattr(in_sync_sets._Change, "propose", lambda _: None)


def do_not_check_incarnations(patch: Patch) -> None:
    commit = ClusterMetadata._commit

    async def commit_unchecked(metadata: ClusterMetadata, changes: Sequence[EntryChange], _: object = ()) -> None:
        await commit(metadata, changes)

    patch.setattr(ClusterMetadata, "_commit", commit_unchecked)


def serve_any_incarnation(patch: Patch) -> None:
    handle = follower_sessions.FollowerSessions.handle

    def handle_any(sessions: Any, context: Any, call: Any) -> Any:
        registered = sessions._broker.metadata.image.brokers.get(call.replica_id)
        epoch = call.replica_epoch if registered is None else registered.incarnation
        return handle(sessions, context, call._replace(replica_epoch=epoch))

    patch.setattr(follower_sessions.FollowerSessions, "handle", handle_any)


def stay_in_sync_after_a_crash(patch: Patch) -> None:
    resign: Any = elections.resign

    def resign_from_leading_only(partition: PartitionImage, *arguments: Any, **state: bool) -> PartitionImage:
        result: PartitionImage = resign(partition, *arguments, **{**state, "is_intact": True})
        return result

    patch.setattr(cluster_member, "resign", resign_from_leading_only)


def take_any_epoch(patch: Patch) -> None:
    patch.setattr(Log, "_check_follows", lambda *_: None)


def take_any_epoch_from_a_truncated_file(patch: Patch) -> None:
    """What a leader sends late is in the place of what it has truncated. Each of the two mends is enough."""
    append_to_the_truncated_file(patch)
    take_any_epoch(patch)


def write_as_any_controller(patch: Patch) -> None:
    commit_topics = ClusterMetadata.commit_topics

    async def commit(metadata: ClusterMetadata, topics: Sequence[TopicImage], checks: Sequence[VersionCheck]) -> None:
        await commit_topics(metadata, topics, [check for check in checks if check.path != CONTROLLER_EPOCH])

    patch.setattr(ClusterMetadata, "commit_topics", commit)


def repeat_with_the_version_that_was_known(patch: Patch) -> None:
    async def change_topic(
        metadata: ClusterMetadata, topic: TopicImage, decide: Callable[[TopicImage], TopicImage], checks: Any = ()
    ) -> TopicImage:
        while True:
            try:
                await metadata.commit_topics([decide(topic)], checks)
                return topic
            except VersionConflictError:
                await asyncio.sleep(0.01)

    patch.setattr(InSyncSets, "_commit", _commit_with(change_topic))


def _commit_with(change_topic: Any) -> Any:
    async def commit(sets: InSyncSets, topic: str, changes: Mapping[int, Any]) -> None:
        image = sets._metadata.image.topics[topic]
        await change_topic(sets._metadata, image, lambda now: sets._changed(now, changes))

    return commit


def join_at_the_watermark(patch: Patch) -> None:
    patch.setattr(in_sync_sets, "joining_offset", lambda *_, high_watermark, **__: high_watermark)


# -- where logs diverge


def never_find_a_divergence(patch: Patch) -> None:
    patch.setattr(follower_sessions, "divergence", lambda *_: None)


def know_only_the_exact_epoch(patch: Patch) -> None:
    """A leader that does not have the epoch answers that it knows nothing; the follower goes to its watermark."""
    truncate = ReplicaFetcher._truncate

    def diverging(epochs: Any, end: int, leader_epoch: int, offset: int, epoch: int) -> EpochEnd | None:
        found = divergence(epochs, end, leader_epoch, offset, epoch)
        return EpochEnd(NO_EPOCH, -1) if found is not None and found.epoch != epoch else found

    def truncate_to_the_watermark(self: ReplicaFetcher, partition: Partition, leader: EpochEnd, now_ms: int) -> None:
        if leader.end_offset < 0:
            self._shorten(partition, lambda: partition.truncate_to(partition.high_watermark, now_ms))
        else:
            truncate(self, partition, leader, now_ms)

    patch.setattr(follower_sessions, "divergence", diverging)
    patch.setattr(ReplicaFetcher, "_truncate", truncate_to_the_watermark)


def truncate_to_where_the_leader_says(patch: Patch) -> None:
    """Without a look at the own history: the leader's epoch may have ended earlier here."""
    patch.setattr(fetcher, "truncation_offset", lambda _, end, leader: min(leader.end_offset, end))


def look_for_a_divergence_once(patch: Patch) -> None:
    """A follower that finds the same leader again does not truncate, although it missed an epoch in between."""
    record = FollowerSession._record
    seen: set[tuple[int, Any, int]] = set()

    def record_unless_known(self: FollowerSession, slot: Any, partition: Partition, row: Any, incarnation: int) -> None:
        key = (self._broker.identity.node_id, partition.name, self._node_id)
        row = row._replace(last_fetched_epoch=NO_EPOCH) if key in seen else row
        seen.add(key)
        record(self, slot, partition, row, incarnation)

    patch.setattr(FollowerSession, "_record", record_unless_known)


def forget_an_epoch_that_has_written_nothing(patch: Patch) -> None:
    def diverging(epochs: Any, end: int, _: int, offset: int, epoch: int) -> EpochEnd | None:
        return divergence(epochs, end, NO_EPOCH, offset, epoch)

    patch.setattr(follower_sessions, "divergence", diverging)


def keep_epochs_without_records(patch: Patch) -> None:
    def truncate_to(epochs: LeaderEpochs, end_offset: int) -> None:
        epochs._save([entry for entry in epochs._entries if entry[1] <= end_offset])

    patch.setattr(LeaderEpochs, "truncate_to", truncate_to)


def know_only_the_latest_epoch(patch: Patch) -> None:
    """The history has a gap: earlier epochs seem to end where the latest begins."""
    save = LeaderEpochs._save

    def save_latest(epochs: LeaderEpochs, entries: list[tuple[int, int]]) -> None:
        save(epochs, entries[-1:])

    patch.setattr(LeaderEpochs, "_save", save_latest)
