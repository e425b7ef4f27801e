"""One partition as this broker has it: its log, its role, and the requests that wait for it."""

from __future__ import annotations

from collections.abc import Callable, Container, Sequence
from enum import Enum
from pathlib import Path
from typing import Final
from uuid import UUID

from skylog.broker.growth_listeners import GrowthListener, GrowthListeners, Replicated
from skylog.cluster import PartitionImage
from skylog.errors import ErrorCode, KafkaError
from skylog.model import NO_EPOCH, TopicPartition
from skylog.records import BatchHeader, stamp_epochs
from skylog.records.control import MARKER_BYTES
from skylog.replication import LeaderState
from skylog.storage import Admitted, AppendResult, FileSlice, Log

ProgressListener = Callable[[], None]
"""Called when a follower has fetched, or the partition has another leader or other replicas."""

ALL: Final = -1
"""acks: every in-sync replica must have the records."""


class Role(Enum):
    """What a broker does with its replica of a partition."""

    LEADER = "leader"
    FOLLOWER = "follower"
    OFFLINE = "offline"


class Partition:
    """This broker's replica of a partition. Clients may read everything below `high_watermark`.

    A leader that `is_alone` in the in-sync set commits every append at once: the high watermark moves with the log's
    end. Otherwise `leading` has the progress of the followers. Where the flush policy demands an fsync, the leader's
    own copy counts after it. Consumers wait for the high watermark, followers for the log's end.
    """

    __slots__ = (
        "_copied_bytes",
        "_first_offset",
        "_leader_high_watermark",
        "_listeners",
        "_observers",
        "bytes_out",
        "has_enough_replicas",
        "image",
        "in_sync_count",
        "is_alone",
        "is_leader",
        "leader_epoch",
        "leading",
        "log",
        "must_checkpoint",
        "must_copy_again",
        "name",
        "refusal",
        "required_in_sync",
        "role",
        "topic_id",
    )

    def __init__(self, name: TopicPartition, topic_id: UUID, log: Log) -> None:
        self.name = name
        self.topic_id = topic_id
        self.leader_epoch = NO_EPOCH
        self.log = log
        log.when_flushed = self.update_watermark
        self.role = Role.FOLLOWER
        self.is_leader = False
        self.is_alone = False
        self.image: PartitionImage | None = None
        self.leading: LeaderState | None = None
        self.in_sync_count = 0
        self.required_in_sync = 0
        self.has_enough_replicas = False
        self.refusal: str | None = None  # why clients cannot write, although this broker leads
        self.must_checkpoint = False  # the checkpoint still has a recovery point beyond a truncation
        self.must_copy_again = False  # as soon as this replica follows a leader and is not in sync
        self.bytes_out = 0  # sent to clients since the broker was started
        self._first_offset = log.log_end_offset  # moves with what is not appended by clients
        self._copied_bytes = 0  # appended as a follower
        self._leader_high_watermark = 0
        self._listeners = GrowthListeners(log)
        self._observers: dict[ProgressListener, None] = {}

    # -- role

    def lead(self, image: PartitionImage, node_id: int, now_s: float, *, is_replicated: bool = True) -> None:
        """Become the leader in an epoch, or stay it with other replicas or another in-sync set.

        If too few replicas are in sync now, the requests that wait for them fail. In a cluster, as in Kafka since 3.7,
        a topic cannot require more replicas in sync than it has.
        """
        if len(image.replicas) == 1:
            self.leading = None
        elif self.leading is None or image.leader_epoch != self.leader_epoch:
            self.leading = LeaderState(node_id, self.log.log_end_offset)
        self.role = Role.LEADER
        self.is_leader = True
        self.image = image
        self.leader_epoch = image.leader_epoch
        self.in_sync_count = len(image.in_sync_replicas)
        required = self.log.config.min_insync_replicas
        if is_replicated:
            required = min(required, len(image.replicas) - len(image.adding))
        self.required_in_sync = required
        self.has_enough_replicas = self.in_sync_count >= required
        if self.leading is not None:
            self.leading.update(image.replicas, image.in_sync_replicas, self._required_to_commit(image), now_s)
        self.update_watermark()
        if not self.has_enough_replicas:
            self._listeners.fail_uncommitted(self._too_few_replicas(ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND))

    def _required_to_commit(self, image: PartitionImage) -> int:
        """Return how many replicas must be in sync to commit anything.

        While there are eligible replicas, nothing may be committed without them: another broker, for which more
        replicas are required, could elect one. That broker removes them when fewer are required for it, too.
        """
        required = self.required_in_sync
        return max(required, self.in_sync_count + 1) if image.eligible_replicas else required

    def follow(self, image: PartitionImage) -> None:
        """Become a follower in an epoch. Requests that wait are woken, and find another leader or epoch."""
        has_new_epoch = image.leader_epoch != self.leader_epoch
        self.image = image
        self.leader_epoch = image.leader_epoch
        if self.is_leader:
            self._stop_serving(Role.FOLLOWER, self.not_leader())
        elif has_new_epoch:
            self._listeners.wake_all_consumers()

    def retire(self) -> None:
        """Wake every request that waits, because the partition is removed."""
        self.log.when_flushed = None  # without the cycle, the log is freed at once
        self._stop_serving(Role.OFFLINE, self.log.failed())

    def _stop_serving(self, role: Role, error: KafkaError) -> None:
        self.role = role
        self.is_leader = self.is_alone = False
        self.leading = None
        self._listeners.forget_invisible()
        self._leader_high_watermark = 0
        self._listeners.fail_uncommitted(error)
        self._listeners.wake_all_consumers()
        self._listeners.wake_followers()
        self._report_progress()

    def not_leader(self) -> KafkaError:
        """Return the error for a request that found the leader here, and came too late."""
        if self.log.is_retired:
            return self.log.failed()
        return KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"{self.name} has another leader now")

    def check_leads_in(self, leader_epoch: int) -> None:
        """Raise KafkaError unless this broker leads, and has not stopped to since that epoch."""
        if not self.is_leader or self.leader_epoch != leader_epoch:
            raise self.not_leader()

    def _too_few_replicas(self, code: ErrorCode) -> KafkaError:
        minimum = self.log.config.min_insync_replicas
        return KafkaError(code, f"{self.name} has {self.in_sync_count} replicas in sync, min.insync.replicas={minimum}")

    # -- offsets

    @property
    def high_watermark(self) -> int:
        return self.log.high_watermark

    @property
    def last_stable_offset(self) -> int:
        """The end of the records that a read_committed consumer may read."""
        return self.log.last_stable_offset

    @property
    def has_current_watermark(self) -> bool:
        """Whether the high watermark of a leader has reached the start of its epoch (KIP-207).

        Until then it may be lower than that of the former leader, and offsets that clients know seem not to exist.
        """
        return self.leading is None or self.log.high_watermark >= self.leading.epoch_start

    # -- figures

    @property
    def messages_in(self) -> int:
        """The number of messages that clients have appended here since the broker was started."""
        return self.log.log_end_offset - self._first_offset

    @property
    def bytes_in(self) -> int:
        """The bytes of batches that clients have appended here since the broker was started."""
        return self.log.appended_bytes - self._copied_bytes

    @property
    def lag(self) -> int:
        """How many committed messages a follower does not have yet."""
        return max(0, self._leader_high_watermark - self.log.log_end_offset)

    @property
    def follower_lag(self) -> int:
        """How many messages the slowest follower of a leader does not have yet."""
        if self.leading is None or not self.leading.followers:
            return 0
        slowest = min(progress.end_offset for progress in self.leading.followers.values())
        return self.log.log_end_offset - max(slowest, self.log.log_start_offset)

    # -- appending

    def answers_at_once(self, acks: int) -> bool:
        """Whether an append is committed as soon as it is written, and no batch has to be opened or changed."""
        return self.log.is_plain and (acks != ALL or (self.is_alone and not self.log.awaits_flush))

    def append(self, batch: memoryview, now_ms: int, acks: int, verified_at: int | None = None) -> AppendResult:
        """Append a client's batch and wake waiting fetches. Raises KafkaError.

        The first batch of a transaction needs `verified_at`: see `verification_stamp`.
        """
        return self.append_admitted(self.log.admission.admit(batch, now_ms), now_ms, acks, verified_at)

    def append_own(self, batch: memoryview, now_ms: int) -> AppendResult:
        """Append a batch made by the broker, like a producer with acks=all. Raises KafkaError."""
        return self.append_admitted(self.log.admission.admit_own(batch), now_ms, ALL)

    def append_admitted(
        self, admitted: Admitted, now_ms: int, acks: int, verified_at: int | None = None
    ) -> AppendResult:
        """Append a batch that the log's admission has accepted, and wake waiting fetches. Raises KafkaError."""
        if not self.is_leader:  # it was when the batch arrived
            raise self.not_leader()
        if self.refusal is not None:
            raise KafkaError(ErrorCode.POLICY_VIOLATION, self.refusal)
        if acks == ALL and not self.has_enough_replicas and not self._is_committed_duplicate(admitted[1]):
            raise self._too_few_replicas(ErrorCode.NOT_ENOUGH_REPLICAS)
        result = self.log.append_admitted(admitted, self.leader_epoch, now_ms, verified_at)
        if not result.is_duplicate:
            self._appended(len(admitted[0]))
        return result

    def _is_committed_duplicate(self, header: BatchHeader) -> bool:
        """Whether a batch was stored and committed before, perhaps by a former leader.

        Its producer must hear that now. If five others of its batches were stored first, it would not be recognized.
        """
        stored = self.log.producers.find_stored(header) if header.base_sequence >= 0 else None
        return stored is not None and stored.last_offset < self.log.high_watermark

    def append_marker(
        self, producer_id: int, producer_epoch: int, *, commits: bool, coordinator_epoch: int, now_ms: int
    ) -> AppendResult:
        """End a producer's transaction as the coordinator has decided, like a producer with acks=all.

        Raises KafkaError: INVALID_PRODUCER_EPOCH or TRANSACTION_COORDINATOR_FENCED for a marker of an older epoch.
        """
        if not self.is_leader:
            raise self.not_leader()
        if self.refusal is not None:
            raise KafkaError(ErrorCode.POLICY_VIOLATION, self.refusal)
        return self._append_marker(producer_id, producer_epoch, commits, coordinator_epoch, now_ms)

    def _append_marker(
        self, producer_id: int, producer_epoch: int, commits: bool, coordinator_epoch: int, now_ms: int
    ) -> AppendResult:
        if not self.has_enough_replicas:
            raise self._too_few_replicas(ErrorCode.NOT_ENOUGH_REPLICAS)
        result = self.log.append_marker(
            producer_id,
            producer_epoch,
            commits=commits,
            coordinator_epoch=coordinator_epoch,
            leader_epoch=self.leader_epoch,
            now_ms=now_ms,
        )
        self._appended(MARKER_BYTES)
        return result

    def has_open_transaction(self, producer_id: int, producer_epoch: int) -> bool:
        """Whether a producer's transaction has batches here and no marker. Then further batches need no verification.

        Otherwise ask the coordinator whether the partition is part of the producer's ongoing transaction (KIP-890).
        """
        return self.log.producers.has_open_transaction(producer_id, producer_epoch)

    def verification_stamp(self, producer_id: int) -> int:
        """Return a value to take before the coordinator is asked, and to give to `append` after its answer.

        If a marker ends the producer's transaction meanwhile, the answer is outdated, and `append` raises
        INVALID_TXN_STATE.
        """
        return self.log.producers.last_marker_offset(producer_id)

    def takes_runs(self, acks: int) -> bool:
        """Whether `append_run` may be called for producers with these acks."""
        return (
            self.is_leader
            and self.refusal is None
            and (acks != ALL or self.has_enough_replicas)
            and self.answers_at_once(acks)
            and self.log.takes_runs(self.leader_epoch)
        )

    def append_run(
        self,
        batches: Sequence[bytes | memoryview],
        length: int,
        rows: Sequence[tuple[int, int, int]],
        end_offset: int,
        now_ms: int,
    ) -> bool:
        """Append several batches with one write: see `Log.append_run`. Return False if nothing was stored."""
        is_stored = self.log.append_run(batches, length, rows, end_offset, now_ms)
        if is_stored:
            self._appended(length)
        return is_stored

    def _appended(self, size_bytes: int) -> None:
        """Wake the followers, and the consumers too if the append is visible already."""
        log, listeners = self.log, self._listeners
        if listeners.followers:
            listeners.wake_followers(size_bytes)
        if self.is_alone and not log.awaits_flush:
            log.high_watermark = log.log_end_offset
            if listeners.consumers or listeners.committed:
                listeners.wake_consumers(size_bytes)
        else:
            listeners.note_invisible(size_bytes)

    def when_replicated(self, end_offset: int, done: Replicated) -> None:
        """Call `done` when the high watermark has reached `end_offset`, or with the error that prevents it."""
        self._listeners.wait_for_commit(end_offset, done)

    def is_replicated(self, end_offset: int) -> bool:
        """Whether the followers in sync have everything below `end_offset`. The leader may still wait for its disk."""
        return self.leading is None or self.leading.high_watermark(end_offset) >= end_offset

    def advance_high_watermark(self, offset: int) -> None:
        """Raise the high watermark: every replica in sync has the records below `offset`."""
        before = self.log.high_watermark
        self.log.advance_high_watermark(offset)
        if self.log.high_watermark != before:
            self._listeners.high_watermark_moved()

    def update_watermark(self) -> None:
        """Advance the high watermark of a leader as far as its followers, its in-sync set and its disk allow."""
        if not self.is_leader:
            return
        leading, log = self.leading, self.log
        self.is_alone = leading is None or leading.is_alone
        end = log.committable_end
        self.advance_high_watermark(end if leading is None else leading.high_watermark(end))
        if log.awaits_flush and log.failure is not None:
            self._listeners.fail_uncommitted(log.failed())
        if self._observers:
            self._report_progress()

    def _report_progress(self) -> None:
        for observer in tuple(self._observers):
            observer()

    # -- deleting

    def delete_records(self, before_offset: int) -> None:
        """Delete the records below an offset as the leader, and let the followers know. Raises KafkaError."""
        self.log.delete_records(before_offset)
        self._listeners.wake_followers(0)

    def low_watermark(self, live: Container[int]) -> int:
        """Return the smallest log start offset of the live replicas; -1 if one of them has not fetched yet.

        A replica that is not live counts as well if it can be elected: as the leader it would bring back what the
        others have deleted.
        """
        starts = [self.log.log_start_offset]
        if self.leading is not None:
            image = self.image
            complete = {*image.in_sync_replicas, *image.eligible_replicas} if image is not None else set()
            followers = self.leading.followers.items()
            starts += [each.log_start_offset for node, each in followers if node in live or node in complete]
        return min(starts)

    def observe(self, observer: ProgressListener) -> None:
        self._observers[observer] = None

    def stop_observing(self, observer: ProgressListener) -> None:
        self._observers.pop(observer, None)

    # -- mirroring

    def append_from_source(self, data: memoryview, now_ms: int) -> int:
        """Append batches of another cluster at their own offsets, as the leader. Return the offset after the last.

        The epoch in their headers is replaced in place by the one of this leader. Raises like `Log.append_as_follower`,
        and KafkaError if this broker does not lead, or too few replicas are in sync.
        """
        if not self.is_leader:
            raise self.not_leader()
        if not self.has_enough_replicas:
            raise self._too_few_replicas(ErrorCode.NOT_ENOUGH_REPLICAS)
        stamp_epochs(data, self.leader_epoch)
        before = self.log.log_end_offset
        try:
            return self.log.append_as_follower(data, self.leader_epoch, now_ms)
        finally:
            if self.log.log_end_offset > before:
                self._appended(len(data))

    def begin_log_at(self, offset: int, now_ms: int) -> list[Path]:
        """Drop everything, as the leader, and begin again at `offset`. Followers do the same with their next fetch.

        Returns the files to unlink. Raises OSError.
        """
        paths = self.restart_at(offset, now_ms)
        self._listeners.wake_followers()
        return paths

    def abort_open_transactions(self, now_ms: int) -> int:
        """End the transactions that a source has left open when its mirror is promoted. Return the end of the log."""
        if not self.is_leader:
            raise self.not_leader()
        producers = self.log.producers
        for producer_id in [each for each, entry in producers if entry.transaction_start >= 0]:
            entry = producers.find(producer_id)
            assert entry is not None
            self._append_marker(producer_id, entry.epoch, False, max(entry.coordinator_epoch, 0), now_ms)
        return self.log.log_end_offset

    # -- following

    def append_from_leader(self, data: memoryview, leader_epoch: int, now_ms: int) -> None:
        """Append batches that were fetched from the leader of an epoch. Raises like `Log.append_as_follower`."""
        log = self.log
        before = log.log_end_offset
        try:
            log.append_as_follower(data, leader_epoch, now_ms)
            self._copied_bytes += len(data)
        finally:
            self._first_offset += log.log_end_offset - before
            self._listeners.note_invisible(len(data))

    def follow_watermarks(self, high_watermark: int, log_start_offset: int) -> None:
        """Take over the leader's high watermark and log start offset, as far as this log reaches."""
        log = self.log
        self._leader_high_watermark = high_watermark
        if high_watermark > log.high_watermark:
            self.advance_high_watermark(high_watermark)
        if log_start_offset > log.log_start_offset:
            log.log_start_offset = min(log_start_offset, log.high_watermark)

    def truncate_to(self, offset: int, now_ms: int) -> list[Path]:
        """Cut off what the leader does not have. Return the files to unlink. Raises OSError."""
        self._listeners.forget_invisible(offset)
        return self._shorten(lambda: self.log.truncate_to(offset, now_ms))

    def restart_at(self, offset: int, now_ms: int) -> list[Path]:
        """Begin again at `offset`, where the leader's log begins. Return the files to unlink. Raises OSError."""
        self._listeners.forget_invisible()
        return self._shorten(lambda: self.log.restart_at(offset, now_ms))

    def _shorten(self, shorten: Callable[[], list[Path]]) -> list[Path]:
        """Cut something off the log. Messages in stay counted, and consumers beyond the new end are woken."""
        before = self.log.log_end_offset
        try:
            return shorten()
        finally:
            self._first_offset += self.log.log_end_offset - before
            self._listeners.wake_all_consumers()

    # -- reading

    def read(self, offset: int, max_bytes: int, at_least_one: bool, read_committed: bool = False) -> FileSlice | None:
        """Return batches for a consumer, from below the high watermark. Raises like `Log.read_checked`.

        With `read_committed` they end at the last stable offset, and `Log.aborted_in` tells which were aborted.
        """
        log = self.log
        end_offset = log.last_stable_offset if read_committed else log.high_watermark
        return log.read_checked(offset, max_bytes, at_least_one, end_offset)

    def check_epoch(self, epoch: int) -> None:
        """Raise KafkaError if a client has another leader epoch: it must refresh its metadata (KIP-320)."""
        if epoch in (NO_EPOCH, self.leader_epoch):
            return
        code = ErrorCode.FENCED_LEADER_EPOCH if epoch < self.leader_epoch else ErrorCode.UNKNOWN_LEADER_EPOCH
        raise KafkaError(code, f"{self.name} is in leader epoch {self.leader_epoch}, the client in {epoch}")

    def epoch_of(self, offset: int) -> int:
        """Return the leader epoch of the record at `offset`. At the log's end this is the epoch of the next record."""
        return self.leader_epoch if offset >= self.log.log_end_offset else self.log.epochs.epoch_of(offset)

    def wait_for_watermark(self, listener: GrowthListener) -> None:
        """Call `listener` whenever more records become visible to consumers."""
        self._listeners.consumers[listener] = None

    def wait_for_stable(self, listener: GrowthListener) -> None:
        """Call `listener` whenever more records become visible to read_committed consumers."""
        self._listeners.wait_for_stable(listener)

    def wait_for_end(self, listener: GrowthListener) -> None:
        """Call `listener` whenever records are appended."""
        self._listeners.followers[listener] = None

    def stop_waiting(self, listener: GrowthListener) -> None:
        self._listeners.stop_waiting(listener)
