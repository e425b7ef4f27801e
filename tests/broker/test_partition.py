"""A replica's roles: who may append, what consumers see, and which requests are woken when."""

from __future__ import annotations

import asyncio
import dataclasses
import gc
import weakref
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from uuid import uuid4

import pytest

from skylog.broker import growth_listeners
from skylog.broker.partition import Partition, Role
from skylog.broker.replicas import Replicas
from skylog.cluster import ClusterImage, PartitionImage, TopicImage
from skylog.cluster.image import NO_LEADER
from skylog.errors import ErrorCode, KafkaError
from skylog.model import TopicPartition
from skylog.storage import Log, LogConfig, LogDir
from skylog.testing import ManualClock
from tests.storage.logs import Home, a_batch

OURS, THEIRS = 1, 2


@pytest.fixture
def log(tmp_path: Path) -> Log:
    return Home(tmp_path).open()


@pytest.fixture
def partition(log: Log) -> Partition:
    return Partition(log.name, uuid4(), log)


def lead(partition: Partition, in_sync_count: int) -> None:
    """Lead two replicas, of which so many are in sync."""
    partition.lead(PartitionImage(OURS, 0, (OURS, THEIRS), (OURS, THEIRS)[:in_sync_count]), OURS, 0.0)


def append(partition: Partition, records: int = 1, acks: int = -1) -> int:
    return partition.append(memoryview(a_batch(records)), 0, acks).end_offset


def test_with_one_replica_in_sync_every_append_is_visible_at_once(partition: Partition) -> None:
    lead(partition, in_sync_count=1)
    woken: list[int] = []
    partition.wait_for_watermark(woken.append)
    append(partition, 3)
    assert partition.high_watermark == 3
    assert len(woken) == 1
    assert partition.read(0, 1 << 20, at_least_one=True) is not None


def test_with_more_replicas_consumers_wait_for_the_watermark_and_followers_for_the_end(partition: Partition) -> None:
    lead(partition, in_sync_count=2)
    consumer: list[int] = []
    follower: list[int] = []
    partition.wait_for_watermark(consumer.append)
    partition.wait_for_end(follower.append)
    append(partition, 2)
    append(partition, 1)
    sizes = list(follower)
    assert len(sizes) == 2
    assert consumer == []
    assert partition.read(0, 1 << 20, at_least_one=True) is None
    partition.advance_high_watermark(2)
    assert consumer == sizes[:1]
    found = partition.read(0, 1 << 20, at_least_one=True)
    assert found is not None
    assert found.length == sizes[0]
    partition.advance_high_watermark(3)
    assert consumer == sizes


def test_what_must_be_flushed_is_visible_after_the_fsync(partition: Partition) -> None:
    partition.log.configure(LogConfig(flush_messages=1))
    lead(partition, in_sync_count=2)
    assert partition.leading is not None
    woken: list[int] = []
    partition.wait_for_watermark(woken.append)
    end = append(partition, 3)
    partition.leading.followers[THEIRS].fetched(0, end, 0, end, 1.0)
    partition.update_watermark()
    assert (partition.high_watermark, woken) == (0, [])
    task = partition.log.begin_flush()
    later = append(partition, 2)
    task.run()
    partition.log.end_flush(task)
    assert partition.high_watermark == end
    assert len(woken) == 1
    lead(partition, in_sync_count=1)
    assert partition.high_watermark == end
    task = partition.log.begin_flush()
    task.run()
    partition.log.end_flush(task)
    assert partition.high_watermark == later


def test_a_failed_fsync_fails_whoever_waits_behind_it(partition: Partition) -> None:
    partition.log.configure(LogConfig(flush_messages=3))
    lead(partition, in_sync_count=1)
    assert append(partition, 3) == 3
    task = partition.log.begin_flush()
    outcomes: list[KafkaError | None] = []
    end = append(partition, 1)  # too few for an fsync of its own
    partition.when_replicated(end, outcomes.append)
    assert outcomes == []
    partition.log.end_flush(task, OSError("broken"))
    [failed] = outcomes
    assert failed is not None
    assert failed.code is ErrorCode.KAFKA_STORAGE_ERROR


def test_while_an_fsync_is_due_no_append_is_acknowledged_at_once(partition: Partition) -> None:
    partition.log.configure(LogConfig(flush_messages=1))
    lead(partition, in_sync_count=1)
    append(partition)
    task = partition.log.begin_flush()
    partition.log.configure(LogConfig())  # the policy is changed meanwhile
    assert (partition.answers_at_once(-1), partition.answers_at_once(1)) == (False, True)
    task.run()
    partition.log.end_flush(task)
    assert partition.answers_at_once(-1)


def test_an_append_that_was_not_due_is_visible_although_the_policy_became_strict_during_a_flush(
    partition: Partition,
) -> None:
    lead(partition, in_sync_count=1)
    append(partition)
    task = partition.log.begin_flush()
    end = append(partition)
    partition.log.configure(LogConfig(flush_messages=1))
    task.run()
    partition.log.end_flush(task)
    assert (partition.high_watermark, partition.log.awaits_flush) == (end, False)


def test_a_follower_ends_no_transactions_of_a_mirror(partition: Partition) -> None:
    partition.follow(PartitionImage(THEIRS, 1, (OURS, THEIRS), (OURS, THEIRS)))
    with pytest.raises(KafkaError) as refused:
        partition.abort_open_transactions(0)
    assert refused.value.code is ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_the_log_of_a_retired_partition_is_freed_without_the_garbage_collector(tmp_path: Path) -> None:
    log = Home(tmp_path).open()
    partition = Partition(log.name, uuid4(), log)
    lead(partition, in_sync_count=1)
    append(partition)
    freed = weakref.ref(log)
    gc.disable()
    try:
        partition.retire()
        del partition, log
        assert freed() is None
    finally:
        gc.enable()


def test_a_leader_commits_nothing_while_another_broker_could_elect_an_eligible_replica(partition: Partition) -> None:
    """Here one replica in sync is enough. For the controller, which has not seen that setting yet, two are required."""
    image = PartitionImage(OURS, 0, (OURS, THEIRS), (OURS,), eligible_replicas=(THEIRS,))
    partition.lead(image, OURS, 0.0)
    append(partition)
    assert (partition.high_watermark, partition.is_alone) == (0, False)
    partition.lead(dataclasses.replace(image, eligible_replicas=()), OURS, 0.0)
    assert (partition.high_watermark, partition.is_alone) == (1, True)


def test_a_watermark_that_stands_still_does_not_let_the_memory_grow(
    partition: Partition, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(growth_listeners, "_MAX_INVISIBLE", 10)
    lead(partition, in_sync_count=2)
    woken: list[int] = []
    partition.wait_for_watermark(woken.append)
    sizes = []
    for _ in range(500):
        append(partition, acks=1)
        sizes.append(len(a_batch()))
    assert len(partition._listeners._invisible) <= 11
    partition.advance_high_watermark(500)
    assert woken == [sum(sizes)]


def test_an_append_is_replicated_when_the_watermark_reaches_it(partition: Partition) -> None:
    lead(partition, in_sync_count=2)
    done: list[tuple[int, KafkaError | None]] = []
    for _ in range(3):
        end_offset = append(partition)
        partition.when_replicated(end_offset, lambda error, end=end_offset: done.append((end, error)))  # type: ignore[misc]
    partition.advance_high_watermark(2)
    assert done == [(1, None), (2, None)]


def test_a_leader_that_becomes_a_follower_wakes_every_request(partition: Partition) -> None:
    lead(partition, in_sync_count=2)
    errors: list[KafkaError | None] = []
    consumer: list[int] = []
    follower: list[int] = []
    partition.when_replicated(append(partition), errors.append)
    partition.wait_for_watermark(consumer.append)
    partition.wait_for_end(follower.append)
    partition.follow(PartitionImage(THEIRS, 1, (OURS, THEIRS), (THEIRS,)))
    assert [error.code for error in errors if error is not None] == [ErrorCode.NOT_LEADER_OR_FOLLOWER]
    assert (len(consumer), len(follower)) == (1, 1)
    assert not partition.is_leader


def test_a_batch_that_was_opened_while_the_leader_changed_is_refused(partition: Partition) -> None:
    """It would have the epoch of the new leader, which has another batch at the same offset: never found out."""
    lead(partition, in_sync_count=1)
    admitted = partition.log.admission.admit(memoryview(a_batch()), 0)
    partition.follow(PartitionImage(THEIRS, 1, (OURS, THEIRS), (THEIRS,)))
    with pytest.raises(KafkaError) as caught:
        partition.append_admitted(admitted, 0, acks=1)
    assert caught.value.code is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert partition.log.log_end_offset == 0


def test_the_last_replica_in_sync_makes_everything_visible(partition: Partition) -> None:
    lead(partition, in_sync_count=2)
    errors: list[KafkaError | None] = []
    partition.when_replicated(append(partition), errors.append)
    lead(partition, in_sync_count=1)
    assert errors == [None]
    assert partition.high_watermark == 1


def test_acks_all_needs_enough_replicas_in_sync_also_for_several_batches_at_once(tmp_path: Path) -> None:
    log = Home(tmp_path, min_insync_replicas=2).open()
    partition = Partition(log.name, uuid4(), log)
    lead(partition, in_sync_count=1)
    with pytest.raises(KafkaError) as caught:
        append(partition)
    assert caught.value.code is ErrorCode.NOT_ENOUGH_REPLICAS
    append(partition, acks=1)
    assert not partition.takes_runs(-1)
    assert partition.takes_runs(1)


def test_the_image_decides_which_partitions_exist_and_who_leads_them(tmp_path: Path) -> None:
    image = ClusterImage("cluster", OURS, {})
    topic = TopicImage(
        "t",
        uuid4(),
        (
            PartitionImage(OURS, 0, (OURS,), (OURS,)),
            PartitionImage(THEIRS, 0, (THEIRS, OURS), (THEIRS, OURS)),
            PartitionImage(THEIRS, 0, (THEIRS,), (THEIRS,)),
        ),
        {},
        1,
    )
    with ThreadPoolExecutor(1) as executor:
        log_dir = LogDir(tmp_path, clock=ManualClock())
        replicas = Replicas(OURS, log_dir, LogConfig(), executor, lambda *_: None, ManualClock())
        replicas.apply(image, image.with_topics({"t": topic}))
        assert [replicas.role_of(TopicPartition("t", index)) for index in range(4)] == [
            Role.LEADER,
            Role.FOLLOWER,
            None,
            None,
        ]
        assert replicas.leader("t", 0).name == TopicPartition("t", 0)
        errors = []
        for name, index in [("t", 1), ("t", 2), ("t", 3), ("t", -1), ("u", 0)]:
            with pytest.raises(KafkaError) as caught:
                replicas.leader(name, index)
            errors.append(caught.value.code)
        assert errors == [ErrorCode.NOT_LEADER_OR_FOLLOWER] * 2 + [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION] * 3

        partitions = list(topic.partitions)
        partitions[0] = PartitionImage(THEIRS, 1, (OURS, THEIRS), (THEIRS,))
        partitions[1] = PartitionImage(OURS, 1, (THEIRS, OURS), (OURS,))
        changed = dataclasses.replace(topic, partitions=tuple(partitions), version=2)
        replicas.apply(image.with_topics({"t": topic}), image.with_topics({"t": changed}))
        assert replicas.leader("t", 1).leader_epoch == 1
        assert replicas.role_of(TopicPartition("t", 0)) is Role.FOLLOWER
        log_dir.close()


@pytest.fixture
def reports(tmp_path: Path) -> Iterator[LeadershipReports]:
    with ThreadPoolExecutor(1) as executor:
        log_dir = LogDir(tmp_path, clock=ManualClock())
        yield LeadershipReports(Replicas(OURS, log_dir, LogConfig(), executor, lambda *_: None, ManualClock()))
        log_dir.close()


class LeadershipReports:
    """Gives a broker partition 0 of topic `t` in some state, and returns what its listener was called with."""

    def __init__(self, replicas: Replicas) -> None:
        self.replicas = replicas
        self._calls: list[tuple[TopicPartition, bool]] = []
        self._image = ClusterImage("cluster", OURS, {})
        self._topic_id = uuid4()
        replicas.on_leadership(lambda partition, leads: self._calls.append((partition.name, leads)))

    def apply(self, *partitions: PartitionImage) -> list[bool]:
        topics = {"t": TopicImage("t", self._topic_id, partitions, {}, 1)} if partitions else {}
        image = self._image.with_topics(topics)
        self.replicas.apply(self._image, image)
        self._image = image
        return self.take()

    def take(self) -> list[bool]:
        calls, self._calls = self._calls, []
        assert {name for name, _ in calls} <= {TopicPartition("t", 0)}
        return [leads for _, leads in calls]


def led_by(leader: int, epoch: int, *in_sync: int) -> PartitionImage:
    return PartitionImage(leader, epoch, (OURS, THEIRS), in_sync or (OURS, THEIRS))


def test_a_broker_that_begins_or_stops_to_lead_reports_it_once(reports: LeadershipReports) -> None:
    assert reports.apply(led_by(THEIRS, 0)) == []
    assert reports.apply(led_by(OURS, 1)) == [True]
    assert reports.apply(led_by(THEIRS, 2)) == [False]
    assert reports.apply(led_by(NO_LEADER, 3)) == []
    assert reports.apply(led_by(OURS, 4)) == [True]
    assert reports.apply() == [False], "the topic is deleted"


def test_a_new_epoch_of_a_broker_that_never_stopped_leading_is_not_reported(reports: LeadershipReports) -> None:
    assert reports.apply(led_by(OURS, 0)) == [True]
    assert reports.apply(led_by(OURS, 1, OURS)) == []
    assert reports.replicas.leader("t", 0).leader_epoch == 1


def test_a_follower_that_is_removed_reports_nothing(reports: LeadershipReports) -> None:
    reports.apply(led_by(THEIRS, 0))
    assert reports.apply() == []


def test_the_leadership_of_an_offline_log_begins_when_the_log_is_opened(
    reports: LeadershipReports, tmp_path: Path
) -> None:
    (tmp_path / "t-0").write_text("a file in the way")
    assert reports.apply(led_by(OURS, 0)) == []
    (tmp_path / "t-0").unlink()
    asyncio.run(reports.replicas.reopen_offline())
    assert reports.take() == [True]
