"""Serves the fetches of followers: one session per follower, which remembers how far each of its partitions is.

A follower sends only the partitions that have changed for it, and gets only those with something new. So a fetch costs
as much as has changed, however many partitions there are. An append marks the sessions of its followers, and wakes
their parked requests in the next turn of the event loop. A new high watermark alone waits some milliseconds for
company.

A follower may send a second request while the first is parked, to add partitions: the first is then answered at once.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from math import inf
from typing import TYPE_CHECKING, Final
from uuid import UUID

from skylog.broker.api import Context
from skylog.broker.config import BrokerConfig
from skylog.broker.partition import Partition
from skylog.broker.replication.follower_slot import FollowerSlot
from skylog.broker.replication.throttles import bounded_delay_s
from skylog.cluster import ClusterImage
from skylog.errors import ErrorCode, KafkaError
from skylog.net import PendingReply, Reply
from skylog.protocol.apis import ApiKey
from skylog.protocol.fetch_hot import FetchCall, PartitionAnswer, PartitionCall, fetch_reply
from skylog.replication import divergence
from skylog.replication.token_bucket import TokenBucket
from skylog.storage import Log, UncheckedError, plan_scrub

if TYPE_CHECKING:
    from skylog.broker.broker import Broker

WATERMARK_DELAY_S: Final = 0.01
_FULL_EPOCH: Final = 0
_LAST_EPOCH: Final = 0x7FFFFFFF

Joined = Callable[[Partition, int], None]
"""Called when a follower may have caught up, with its id."""


class FollowerSessions:
    """The sessions of follower brokers. `last_fetch_s` has the time of the last fetch of each.

    Only the registered incarnation of a broker is served. What a former one had stored says nothing about its
    successor, and a new one tries again until this broker knows of it. `bytes_out` counts the bytes of batches that
    were sent.
    """

    def __init__(self, broker: Broker, progressed: Joined) -> None:
        self._broker = broker
        self._progressed = progressed
        self._sessions: dict[int, FollowerSession] = {}
        self.last_fetch_s: dict[int, float] = {}
        self._bucket = TokenBucket(broker.config.broker.leader_replication_throttled_rate, broker.clock.monotonic())
        self.bytes_out = 0

    def handle(self, context: Context, call: FetchCall) -> Reply | PendingReply:
        """Serve a fetch of version 15 or later."""
        node_id = call.replica_id
        registered = self._broker.metadata.image.brokers.get(node_id)
        if registered is None or registered.incarnation != call.replica_epoch:
            return _refuse(context, ErrorCode.STALE_BROKER_EPOCH)
        self.last_fetch_s[node_id] = self._broker.clock.monotonic()
        session = self._sessions.get(node_id)
        if call.session_epoch == _FULL_EPOCH:
            if session is not None:
                session.close()
            session = self._sessions[node_id] = FollowerSession(
                self._broker, node_id, self._progressed, self._sent, self._bucket
            )
        elif session is None or session.session_id != call.session_id:
            return _refuse(context, ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        elif session.epoch != call.session_epoch:
            return _refuse(context, ErrorCode.INVALID_FETCH_SESSION_EPOCH)
        return session.fetch(context, call)

    def reconfigure(self, config: BrokerConfig) -> None:
        """Use another rate for throttled replicas."""
        self._bucket.change_rate(config.leader_replication_throttled_rate, self._broker.clock.monotonic())

    def apply(self, before: ClusterImage, now: ClusterImage) -> None:
        """End the sessions of brokers that have left the cluster."""
        for node_id in before.brokers.keys() - now.brokers.keys():
            session = self._sessions.pop(node_id, None)
            if session is not None:
                session.close()

    def _sent(self, length: int) -> None:
        self.bytes_out += length

    def close(self) -> None:
        for session in self._sessions.values():
            session.close()


def _refuse(context: Context, code: ErrorCode) -> Reply:
    return fetch_reply(context.correlation_id, context.version, code, [], read_committed=False)


class FollowerSession:
    """One follower. `_marked` has the partitions that may have something to send, in the order to send them.

    `_held` has throttled ones that are marked again when the bucket is not empty any more.
    """

    def __init__(
        self, broker: Broker, node_id: int, progressed: Joined, sent: Callable[[int], None], bucket: TokenBucket
    ) -> None:
        self._broker = broker
        self._node_id = node_id
        self._progressed = progressed
        self._sent = sent
        self.session_id = random.randint(1, _LAST_EPOCH)
        self.epoch = 0
        self._slots: dict[tuple[UUID, int], FollowerSlot] = {}
        self._marked: dict[FollowerSlot, None] = {}
        self._bucket = bucket
        self._held: dict[FollowerSlot, None] = {}
        self._parked: _ParkedRequest | None = None
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._wakes_at = inf
        self._checking: set[asyncio.Task[None]] = set()

    def fetch(self, context: Context, call: FetchCall) -> Reply | PendingReply:
        if self._parked is not None:
            self._parked.finish()
        self.epoch = 1 if self.epoch == _LAST_EPOCH else self.epoch + 1
        for topic, indexes in call.forgotten:
            for index in indexes:
                self._drop(topic, index)
        incarnation = call.replica_epoch
        for topic, rows in call.topics:
            for row in rows:
                self._update(topic, row, incarnation)
        may_wait = call.max_wait_ms > 0 and self.epoch > 1
        answers = self._answers(call.max_bytes, may_wait=may_wait)
        if answers or not may_wait:
            return self._reply(context, answers)
        pending = PendingReply(context.connection, pipelined=True)
        self._parked = _ParkedRequest(self, context, call.max_bytes, pending)
        pending.on_cancel = self._parked.cancel
        self._finish_within(self._parked, WATERMARK_DELAY_S if self._marked else call.max_wait_ms / 1000)
        return pending

    def _finish_within(self, parked: _ParkedRequest, delay_s: float) -> None:
        """Answer the parked request in time. One timer for all requests: they come thousands a second."""
        deadline = self._loop.time() + delay_s
        if deadline < parked.deadline:
            parked.deadline = deadline
            self._wake_at(deadline)

    def _wake_at(self, time_s: float) -> None:
        if time_s < self._wakes_at:
            if self._timer is not None:
                self._timer.cancel()
            self._wakes_at = time_s
            self._timer = self._loop.call_at(time_s, self._finish_due)

    def _finish_due(self) -> None:
        self._timer, self._wakes_at = None, inf
        if self._parked is not None:
            if self._parked.deadline <= self._loop.time():
                self._parked.finish()
            else:
                self._wake_at(self._parked.deadline)

    def _update(self, topic: str | UUID, row: PartitionCall, incarnation: int) -> None:
        """Note how far the follower is in a partition."""
        assert isinstance(topic, UUID)
        slot = self._slots.get((topic, row.partition))
        if slot is None:
            slot = self._slots[topic, row.partition] = FollowerSlot(self, topic)
        slot.begin(row)
        try:
            partition = self._find(topic, row)
            slot.attach(partition)
            self._record(slot, partition, row, incarnation)
        except KafkaError as error:
            slot.error = error
        self._marked[slot] = None

    def _find(self, topic_id: UUID, row: PartitionCall) -> Partition:
        image = self._broker.metadata.image
        name = image.names.get(topic_id)
        if name is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_ID, f"there is no topic with the id {topic_id}")
        partition = self._broker.replicas.leader(name, row.partition)
        partition.check_epoch(row.leader_epoch)
        return partition

    def _record(self, slot: FollowerSlot, partition: Partition, row: PartitionCall, incarnation: int) -> None:
        """Let the partition know the follower's position, unless the logs diverge before it (KAFKA-13141)."""
        leading, log = partition.leading, partition.log
        progress = leading.followers.get(self._node_id) if leading is not None else None
        if leading is None or progress is None:
            raise KafkaError(
                ErrorCode.NOT_LEADER_OR_FOLLOWER, f"broker {self._node_id} has no replica of {partition.name}"
            )
        end_offset = log.log_end_offset
        slot.diverging = divergence(log.epochs, end_offset, partition.leader_epoch, row.offset, row.last_fetched_epoch)
        if slot.diverging is not None:
            return
        if not log.log_start_offset <= row.offset <= end_offset:
            raise KafkaError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"{partition.name} holds offsets {log.log_start_offset} to {end_offset}, not {row.offset}",
            )
        now_s = self._broker.clock.monotonic()
        progress.fetched(incarnation, row.offset, row.log_start_offset, end_offset, now_s)
        partition.update_watermark()
        if self._node_id not in leading.in_sync:
            self._progressed(partition, self._node_id)

    # -- what to send

    def mark(self, slot: FollowerSlot) -> None:
        """Called when a partition has something to send."""
        self._marked[slot] = None
        if self._parked is not None:
            self._parked.wake(self._loop)

    def mark_later(self, slot: FollowerSlot) -> None:
        """Called when a partition has another high watermark."""
        self._marked[slot] = None
        if self._parked is not None:
            self._finish_within(self._parked, WATERMARK_DELAY_S)

    def _answers(self, max_bytes: int, *, may_wait: bool = False) -> dict[UUID, list[PartitionAnswer]]:
        """Return what the marked partitions have to send. Those that do not fit stay marked.

        If no partition has records and the request `may_wait`, those with another high watermark stay marked: the
        request itself may have raised it. A response for that alone would cost as much as one with records, which may
        come soon.
        """
        found: dict[UUID, list[PartitionAnswer]] = {}
        waiting: list[FollowerSlot] = []
        limit_bytes = left_bytes = min(max_bytes, self._broker.config.broker.fetch_max_bytes)
        for slot in list(self._marked):
            if left_bytes <= 0 and found:
                break
            del self._marked[slot]
            answer = self._answer(slot, left_bytes, left_bytes == limit_bytes, may_wait)
            if answer is not None:
                found.setdefault(slot.topic_id, []).append(answer)
                left_bytes -= answer.records_length
                self._sent(answer.records_length)
            elif may_wait and slot.has_watermarks:
                waiting.append(slot)
        for slot in waiting:
            if not found:
                self._marked[slot] = None
            elif slot.partition is not None and (answer := slot.answer(slot.partition, None)) is not None:
                found.setdefault(slot.topic_id, []).append(answer)
        return found

    def _answer(
        self, slot: FollowerSlot, left_bytes: int, at_least_one: bool, needs_records: bool
    ) -> PartitionAnswer | None:
        """Return what a partition has to send, or None if there is nothing new, or only watermarks."""
        partition, row = slot.partition, slot.row
        if partition is not None and not (partition.is_leader and partition.leader_epoch == row.leader_epoch):
            slot.error = KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        if partition is None or slot.error is not None:
            return slot.failed() if not slot.is_in_flight else None
        records = None
        is_throttled = self._bucket.is_limited and slot.is_throttled(self._broker.identity.node_id, self._node_id)
        if slot.diverging is None and not slot.is_in_flight and not (is_throttled and self._hold(slot)):
            if is_throttled:
                left_bytes = min(left_bytes, self._bucket.rate)
            try:
                if slot.is_suspect:
                    slot.is_suspect = False
                    _check_again(partition.log, row.offset)
                records = partition.log.read_as_replica(row.offset, min(row.max_bytes, left_bytes), at_least_one)
            except KafkaError as error:
                slot.error = error
                return slot.failed()
            except UncheckedError as unchecked:
                self._check(slot, partition, unchecked)
                return None
            if is_throttled and records is not None:
                self._bucket.take(records.length, self._broker.clock.monotonic())
            if records is not None and not records.length:
                self._marked[slot] = None  # its next batch does not fit
        return slot.answer(partition, records, needs_records)

    def _hold(self, slot: FollowerSlot) -> bool:
        """Hold a throttled slot back if the rate is exceeded. Return whether it is."""
        delay_s = bounded_delay_s(self._bucket, self._broker.clock.monotonic())
        if not delay_s:
            return False
        if not self._held:
            asyncio.get_running_loop().call_later(delay_s, self._release)
        self._held[slot] = None
        return True

    def _release(self) -> None:
        held, self._held = self._held, {}
        for slot in held:
            if slot.partition is not None:
                self.mark(slot)

    def _check(self, slot: FollowerSlot, partition: Partition, unchecked: UncheckedError) -> None:
        """Have batches checked before they are sent. The slot is marked again afterwards."""
        task = asyncio.create_task(self._run_check(slot, partition, unchecked))
        self._checking.add(task)
        task.add_done_callback(self._checking.discard)

    async def _run_check(self, slot: FollowerSlot, partition: Partition, unchecked: UncheckedError) -> None:
        try:
            await self._broker.checks.run(partition.log, unchecked)
        except KafkaError as error:
            slot.error = error
        self.mark(slot)

    def reply_parked(self, context: Context, max_bytes: int) -> Reply:
        return self._reply(context, self._answers(max_bytes))

    def _reply(self, context: Context, answers: dict[UUID, list[PartitionAnswer]]) -> Reply:
        for rows in answers.values():
            for row in rows:
                if row.error_code:
                    self._broker.requests.errors[ApiKey.FETCH, ErrorCode(row.error_code).name] += 1
        topics: list[tuple[str | UUID, list[PartitionAnswer]]] = list(answers.items())
        return fetch_reply(context.correlation_id, context.version, 0, topics, False, self.session_id)

    def unpark(self, request: _ParkedRequest) -> None:
        if self._parked is request:
            self._parked = None

    def _drop(self, topic: str | UUID, index: int) -> None:
        assert isinstance(topic, UUID)
        slot = self._slots.pop((topic, index), None)
        if slot is not None:
            slot.detach()
            self._marked.pop(slot, None)

    def close(self) -> None:
        """Forget everything. A parked request is answered."""
        if self._parked is not None:
            self._parked.finish()
        if self._timer is not None:
            self._timer.cancel()
        for slot in self._slots.values():
            slot.detach()
        self._slots.clear()
        self._marked.clear()
        for task in self._checking:
            task.cancel()


def _check_again(log: Log, offset: int) -> None:
    """Raise UncheckedError to have the batches at `offset` checked, although this process may have appended them.

    They may be above the high watermark. If they are damaged there, another replica must lead: see `in_sync_sets`.
    """
    part = plan_scrub(log, offset, 1, log.log_end_offset)
    if part is not None:
        raise UncheckedError(part)


class _ParkedRequest:
    """A fetch that found nothing new. It is answered once: when something is marked, or its time is up."""

    __slots__ = ("_context", "_max_bytes", "_pending", "_session", "_wake", "deadline")

    def __init__(self, session: FollowerSession, context: Context, max_bytes: int, pending: PendingReply) -> None:
        self._session = session
        self._context = context
        self._max_bytes = max_bytes
        self._pending = pending
        self._wake: asyncio.Handle | None = None
        self.deadline = inf  # in the time of the event loop

    def wake(self, loop: asyncio.AbstractEventLoop) -> None:
        """Answer in the next turn of the event loop, so that the response has all appends of this one."""
        if self._wake is None:
            self._wake = loop.call_soon(self.finish)

    def finish(self) -> None:
        self.cancel()
        self._pending.resolve(self._session.reply_parked(self._context, self._max_bytes))

    def cancel(self) -> None:
        """Give up: the follower has closed the connection."""
        if self._wake is not None:
            self._wake.cancel()
        self._session.unpark(self)
