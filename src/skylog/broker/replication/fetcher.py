"""Fetches from the leaders: a follower's side of replication.

One `ReplicaFetcher` per leader broker fetches all partitions that follow it, over one connection and in one fetch
session. It appends what comes byte for byte at the offsets given, truncates where the leader says that the logs
diverge, and takes over the leader's watermarks. A fetch from an offset says that everything below it is stored; where
the topic requires an fsync for that, the next fetch of the partition waits for it.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final, NamedTuple
from uuid import UUID

from skylog.broker.config import BrokerConfig
from skylog.broker.flusher import Flusher
from skylog.broker.housekeeping import Housekeeping
from skylog.broker.partition import Partition
from skylog.broker.replication.throttles import FetchThrottle, Key
from skylog.broker.time_slice import TimeSlice
from skylog.clock import Clock
from skylog.cluster import BrokerImage
from skylog.errors import ErrorCode, KafkaError, SkylogError
from skylog.limited_logger import LimitedLogger
from skylog.net.peer import EncodedAnswer, Peer, PeerError, PeerSecurity
from skylog.protocol.apis import ApiKey
from skylog.protocol.replica_fetch_hot import (
    VERSION,
    ReplicaAnswer,
    ReplicaFetchResponse,
    ReplicaRow,
    read_replica_answers,
    replica_fetch,
)
from skylog.replication import truncation_offset
from skylog.replication.divergence import EpochEnd
from skylog.replication.token_bucket import TokenBucket
from skylog.storage import Check, Log, UncheckedError

logger = logging.getLogger(__name__)
limited_logger = LimitedLogger(logger)

RECONNECT_S: Final = 0.2
RETRY_S: Final = 0.1
DAMAGE_RETRY_S: Final = 1.0
ANSWER_PATIENCE_S: Final = 10.0  # beyond the time for which the leader may park a fetch
_MAX_EPOCH: Final = 0x7FFFFFFF
_MAX_OUTSTANDING: Final = 2


class _Followed:
    """A partition that is fetched in one leader epoch, and the number of the request with its last row."""

    __slots__ = ("epoch", "partition", "sent_in")

    def __init__(self, partition: Partition) -> None:
        self.partition = partition
        self.epoch = partition.leader_epoch
        self.sent_in: int | None = None

    def is_answered_by(self, request: int) -> bool:
        """Whether the response to a request may have an answer to the last row, and not to an earlier one."""
        return self.sent_in is not None and self.sent_in <= request


class _Sent(NamedTuple):
    """A request, the response that is awaited, and until when, in the time of the event loop."""

    number: int
    answer: EncodedAnswer
    deadline: float


class ReplicaFetcher:
    """Fetches from one broker. `bytes_in` counts what was stored, `failures` what could not be."""

    def __init__(
        self,
        node_id: int,
        incarnation: int,
        leader: BrokerImage,
        flusher: Flusher,
        clock: Clock,
        housekeeping: Housekeeping,
        config: BrokerConfig,
        bucket: TokenBucket,
    ) -> None:
        self.leader = leader
        self._node_id = node_id
        self._incarnation = incarnation
        self._flusher = flusher
        self._clock = clock
        self._housekeeping = housekeeping
        self._config = config
        self._followed: dict[Key, _Followed] = {}
        self._changed: dict[Key, None] = {}
        self._forgotten: dict[Key, None] = {}
        self._held: set[Key] = set()  # their logs are being prepared in a thread; then their rows are sent
        self._loop = asyncio.get_running_loop()
        self._signal: asyncio.Future[None] | None = None
        self._awaited: _Sent | None = None
        self._watchdog: asyncio.TimerHandle
        self._throttle = FetchThrottle(node_id, bucket, clock, self._send_all)
        self._requests = 0
        self.security: PeerSecurity | None = None
        self.bytes_in = 0
        self.failures = 0
        self._task = asyncio.create_task(self._run())

    def __len__(self) -> int:
        return len(self._followed)

    def add(self, partition: Partition) -> None:
        """Fetch a partition from now on, in its current epoch."""
        key = partition.topic_id, partition.name.partition
        self._throttle.update(key, partition)
        known = self._followed.get(key)
        if known is not None and known.partition is partition and known.epoch == partition.leader_epoch:
            return  # only its in-sync set has changed
        self._followed[key] = _Followed(partition)
        self._forgotten.pop(key, None)
        if partition.must_copy_again:
            self._copy_again(partition)
        if partition.must_checkpoint:  # the fetcher before this one has truncated it
            self._checkpoint_and_send(key, partition)
        self._send(key)

    def _copy_again(self, partition: Partition) -> None:
        """Drop a replica that cannot be repaired, before the leader hears of it in this epoch: see `Repairs`."""
        image = partition.image
        if image is None or self._node_id in (*image.in_sync_replicas, *image.eligible_replicas):
            return
        start_offset, now_ms = partition.log.log_start_offset, self._clock.now_ms()
        try:
            self._shorten(partition, lambda: partition.restart_at(start_offset, now_ms))
        except (OSError, SkylogError) as error:
            self.failures += 1
            logger.error("%s cannot be copied again yet: %s", partition.name, error)
        else:
            partition.must_copy_again = False

    def remove(self, partition: Partition) -> None:
        key = partition.topic_id, partition.name.partition
        followed = self._followed.get(key)
        if followed is not None and followed.partition is partition:
            del self._followed[key]
            self._throttle.forget(key)
            self._changed.pop(key, None)
            self._forgotten[key] = None

    def stop(self) -> None:
        self._task.cancel()

    async def ended(self) -> None:
        await asyncio.gather(self._task, return_exceptions=True)

    def _send(self, key: Key) -> None:
        """Send the row of a partition with the next request, and send that soon."""
        if key in self._followed:
            self._changed[key] = None
            self._wake()

    def _send_all(self, keys: Iterable[Key]) -> None:
        for key in keys:
            self._send(key)

    def _send_later(self, key: Key, delay_s: float) -> None:
        asyncio.get_running_loop().call_later(delay_s, self._send, key)

    def _wake(self) -> None:
        if self._signal is not None and not self._signal.done():
            self._signal.set_result(None)

    # -- the connection

    async def _run(self) -> None:
        while True:
            try:
                await self._connect_and_fetch()
            except (PeerError, SkylogError) as error:
                limited_logger.warning("cannot replicate from broker %d, retrying: %s", self.leader.node_id, error)
            except Exception:
                self.failures += 1
                logger.exception("replication from broker %d failed, retrying", self.leader.node_id)
            await asyncio.sleep(RECONNECT_S)

    async def _connect_and_fetch(self) -> None:
        leader = self.leader
        peer = await Peer.connect(
            leader.host,
            leader.port,
            client_id=f"broker-{self._node_id}",
            timeout_s=ANSWER_PATIENCE_S,
            security=self.security,
        )
        self._awaited = None
        self._watch_deadline()
        try:
            session = await self._open_session(peer)
            while session is not None:
                session = await self._fetch(peer, session)
        finally:
            self._watchdog.cancel()
            peer.close()

    async def _open_session(self, peer: Peer) -> int | None:
        """Send all partitions. Return the id of the session, or None to begin again."""
        self._forgotten.clear()
        self._changed = dict.fromkeys(self._followed)
        sent = self._send_request(peer, 0, 0)
        while not await self._answered_or_woken(sent):
            pass
        response = read_replica_answers(*sent.answer.result())
        await self._store(response, sent.number)
        return response.session_id if not response.error_code else None

    async def _fetch(self, peer: Peer, session_id: int) -> int | None:
        """Fetch in a session until the leader ends it."""
        epoch = 1
        outstanding: deque[_Sent] = deque()
        while True:
            has_changes = self._changed or self._forgotten
            if not outstanding or (has_changes and len(outstanding) < _MAX_OUTSTANDING):
                outstanding.append(self._send_request(peer, session_id, epoch))
                epoch = 1 if epoch == _MAX_EPOCH else epoch + 1
            if not await self._answered_or_woken(outstanding[0]):
                continue
            sent = outstanding.popleft()
            frame, position = sent.answer.result()
            response = read_replica_answers(frame, position)
            if response.error_code:
                logger.info("broker %d ends the fetch session: %d", self.leader.node_id, response.error_code)
                return None
            if response.answers:
                await self._store(response, sent.number)
            peer.recycle(frame)

    def _send_request(self, peer: Peer, session_id: int, epoch: int) -> _Sent:
        self._requests += 1
        patience_s = self._config.replica_fetch_wait_max_ms / 1000 + ANSWER_PATIENCE_S
        deadline = self._loop.time() + patience_s
        return _Sent(self._requests, peer.send_encoded(*self._request(session_id, epoch), self._wake), deadline)

    async def _answered_or_woken(self, sent: _Sent) -> bool:
        """Wait for a response or for partitions to send. Return whether the response is there.

        Raises PeerError at the deadline of the request, however often there is something to send.
        """
        answer = sent.answer
        if answer.is_done:
            return True
        self._awaited = sent
        self._signal = self._loop.create_future()
        try:
            await self._signal
        finally:
            self._signal = None
        if answer.is_done:
            return True
        if self._loop.time() >= sent.deadline:
            raise PeerError(f"broker {self.leader.node_id} did not answer in time")
        return False

    def _watch_deadline(self) -> None:
        """Wake the wait for a response at its deadline. One timer for all requests: they come thousands a second."""
        now_s = self._loop.time()
        deadline = self._awaited.deadline if self._awaited is not None else now_s + ANSWER_PATIENCE_S
        if deadline <= now_s:
            self._wake()
            deadline = now_s + ANSWER_PATIENCE_S
        self._watchdog = self._loop.call_at(deadline, self._watch_deadline)

    def _request(self, session_id: int, epoch: int) -> tuple[int, int, bytes]:
        """Return the next request: the partitions that have changed, at the ends of their logs."""
        config = self._config
        max_bytes = config.replica_fetch_max_bytes
        limits = self._throttle.admit(self._changed, max_bytes) if self._throttle.taken else None
        rows: dict[UUID, list[ReplicaRow]] = {}
        for key in self._changed if limits is None else limits:
            followed = self._followed[key]
            log = followed.partition.log
            if key in self._held or followed.partition.must_checkpoint:
                continue
            if log.failure is not None:
                continue  # what it has may be lost: let the leader remove it from the in-sync set
            if log.must_flush:
                self._flush_and_send(key, log)
                continue
            followed.sent_in = self._requests
            rows.setdefault(key[0], []).append(
                ReplicaRow(
                    key[1],
                    followed.epoch,
                    log.log_end_offset,
                    log.epochs.latest,
                    log.log_start_offset,
                    max_bytes if limits is None else limits[key],
                )
            )
        forgotten: dict[UUID, list[int]] = {}
        for topic_id, index in self._forgotten:
            forgotten.setdefault(topic_id, []).append(index)
        self._changed, self._forgotten = {}, {}
        wait_ms = config.replica_fetch_wait_max_ms if epoch else 0
        body = replica_fetch(
            self._node_id,
            self._incarnation,
            wait_ms,
            config.replica_fetch_response_max_bytes,
            (session_id, epoch),
            rows,
            forgotten,
        )
        return ApiKey.FETCH, VERSION, body

    def _flush_and_send(self, key: Key, log: Log) -> None:
        """Send the row of a partition after an fsync: the end of its log was there before this start, or it failed."""

        def flushed(error: KafkaError | None) -> None:
            if error is None:
                self._send(key)
            else:
                self._send_later(key, DAMAGE_RETRY_S)

        self._flusher.flush(log, flushed)

    # -- what comes

    async def _store(self, response: ReplicaFetchResponse, request: int) -> None:
        """Store what the leader has sent, and fsync it where the topic requires that.

        A row that was sent again in a later request has its answer there: this one is from before, perhaps of another
        leader epoch. A log that has failed takes nothing: its row is not sent any more, and the leader repeats what it
        knows of the last one.
        """
        time_slice = TimeSlice()
        flushes = []
        now_ms = self._clock.now_ms()
        for answer in response.answers:
            followed = self._followed.get((answer.topic_id, answer.partition))
            if followed is None or not followed.is_answered_by(request) or followed.partition.log.failure is not None:
                continue
            self._apply(followed, answer, now_ms)
            if followed.partition.log.must_flush:
                flushes.append(self._flusher.flushed(followed.partition.log))
            await time_slice.yield_if_over()
        if flushes:
            for outcome in await asyncio.gather(*flushes, return_exceptions=True):
                if isinstance(outcome, BaseException):
                    self.failures += 1
                    logger.error("a follower's log cannot be flushed: %s", outcome)

    def _apply(self, followed: _Followed, answer: ReplicaAnswer, now_ms: int) -> None:
        partition, key = followed.partition, (answer.topic_id, answer.partition)
        if self._throttle.taken and len(answer.records):
            self._throttle.settle(key, len(answer.records))
        try:
            if answer.error_code:
                self._recover(partition, answer, now_ms)
                return
            if answer.diverging is not None:
                followed.sent_in = None  # the leader repeats this until the row is sent again, which may be held
                self._truncate(partition, EpochEnd(*answer.diverging), now_ms)
                return
            start_offset = partition.log.log_start_offset
            if len(answer.records):
                self._changed[key] = None
                partition.append_from_leader(answer.records, followed.epoch, now_ms)
                self.bytes_in += len(answer.records)
            partition.follow_watermarks(answer.high_watermark, answer.log_start_offset)
            if partition.log.log_start_offset != start_offset:
                self._changed[key] = None  # DeleteRecords waits for it
        except (OSError, SkylogError) as error:
            self.failures += 1
            if isinstance(error, OSError):  # an append notes its failure itself, a truncation does not
                partition.log.note_failed_write(followed.epoch, error)
            limited_logger.error("%s cannot be replicated, retrying: %s", partition.name, error)
            self._changed.pop(key, None)
            self._send_later(key, DAMAGE_RETRY_S)

    def _truncate(self, partition: Partition, leader: EpochEnd, now_ms: int) -> None:
        log = partition.log
        offset = truncation_offset(log.epochs, log.log_end_offset, leader)
        try:
            log.prepare_truncation(offset, now_ms)
        except UncheckedError as unchecked:
            self._check_and_send((partition.topic_id, partition.name.partition), log, unchecked.check)
            return
        if offset < log.high_watermark:
            logger.warning(
                "%s: truncating to offset %d below the high watermark %d: its leader was elected uncleanly",
                partition.name,
                offset,
                log.high_watermark,
            )
        self._shorten(partition, lambda: partition.truncate_to(offset, now_ms))

    def _check_and_send(self, key: Key, log: Log, check: Check) -> None:
        """Do in a thread what would hold the event loop. Then the same row gets the same answer, and it is done."""

        def checked(running: asyncio.Future[None]) -> None:
            self._held.discard(key)
            if running.exception() is None:
                check.finish()
                self._send(key)
            else:
                self._send_later(key, DAMAGE_RETRY_S)

        self._held.add(key)
        self._housekeeping.run(lambda: log.run_check(check)).add_done_callback(checked)

    def _shorten(self, partition: Partition, shorten: Callable[[], list[Path]]) -> None:
        """Cut something off a log, and fetch again.

        If that was on disk, the checkpoint must say first that it is not any more, even if something has failed after
        the cut. Otherwise a recovery would not look at the batches that come in its place. Raises OSError.
        """
        key = partition.topic_id, partition.name.partition
        durable_to = partition.log.recovery_point
        try:
            paths = shorten()
        finally:
            if partition.log.recovery_point < durable_to:
                partition.must_checkpoint = True
                self._checkpoint_and_send(key, partition)
        if paths:
            self._housekeeping.discard(*paths)
        self._send(key)

    def _checkpoint_and_send(self, key: Key, partition: Partition) -> None:
        if self._task.done():
            return  # the next fetcher begins with it
        recovery_point = partition.log.recovery_point

        def written(writing: asyncio.Future[None]) -> None:
            if writing.exception() is None:
                if partition.log.recovery_point >= recovery_point:  # otherwise it was truncated again meanwhile
                    partition.must_checkpoint = False
                self._send(key)
            else:
                asyncio.get_running_loop().call_later(DAMAGE_RETRY_S, self._checkpoint_and_send, key, partition)

        self._housekeeping.checkpoint().add_done_callback(written)

    def _recover(self, partition: Partition, answer: ReplicaAnswer, now_ms: int) -> None:
        """Handle an error of the leader. Most are temporary: the image will have another leader soon."""
        key = answer.topic_id, answer.partition
        code = ErrorCode(answer.error_code)
        if code is ErrorCode.OFFSET_OUT_OF_RANGE and answer.log_start_offset >= 0:
            self._shorten(partition, lambda: partition.restart_at(answer.log_start_offset, now_ms))
            return
        is_damaged = code is ErrorCode.CORRUPT_MESSAGE
        log = limited_logger.warning if is_damaged else limited_logger.debug
        log("broker %d answers %s for %s", self.leader.node_id, code.name, partition.name)
        self._send_later(key, DAMAGE_RETRY_S if is_damaged else RETRY_S)
