"""Repairs damaged ranges of this broker's replicas from other replicas that are in sync.

A follower asks the leader first, a leader asks its followers, with a consumer's Fetch of the lost offsets. So a replica
whose own batches are damaged there refuses, and nothing above the high watermark is returned. The leader epoch in the
request makes sure that both follow the same leader. What comes is written in place if it fits exactly (see
`skylog.storage.repair`).

It does not fit if one replica is compacted and the other is not, or if the first of several damaged batches are deleted
(DeleteRecords), because no replica returns those. Then this replica leaves the in-sync set, is dropped,
and copied from the leader again. If too few others are in sync for that, the damage stays reported. A leader lets one
of them lead then: followers that need the damaged batches cannot catch up from this replica, but from that one.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import logging
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from skylog.broker.partition import Partition
from skylog.cluster import BrokerImage, TopicImage
from skylog.cluster.elections import hand_over, withdraw
from skylog.errors import ErrorCode, KafkaError, SkylogError
from skylog.net.peer import Peer
from skylog.protocol.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from skylog.storage import Log, RangeRepair, plan_repairs
from skylog.storage.repair import MisfitError

if TYPE_CHECKING:
    from skylog.broker.broker import Broker

logger = logging.getLogger(__name__)

FETCH_VERSION: Final = 17
FETCH_TIMEOUT_S: Final = 10.0
FIRST_RETRY_S: Final = 1.0
LAST_RETRY_S: Final = 300.0


class _Case:
    """A damaged log: how often its repair has failed, and when to try next."""

    __slots__ = ("attempts", "retry_at")

    def __init__(self) -> None:
        self.attempts = 0
        self.retry_at = 0.0

    def postpone(self, now: float) -> float:
        delay_s: float = min(FIRST_RETRY_S * 2**self.attempts, LAST_RETRY_S)
        self.attempts += 1
        self.retry_at = now + delay_s
        return delay_s


class Repairs:
    """Repairs one log at a time. What cannot be repaired is retried, less and less often."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._cases: dict[Log, _Case] = {}
        self._signal = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self.repaired_ranges = 0
        self.failures = 0

    def start(self) -> None:
        self._task = asyncio.create_task(self._run())

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    def note(self, log: Log) -> None:
        """Repair a log that has damage soon, unless an attempt has just failed."""
        if log not in self._cases:
            self._cases[log] = _Case()
            self._signal.set()

    async def _run(self) -> None:
        while True:
            self._signal.clear()
            for log, case in list(self._cases.items()):
                if case.retry_at <= self._now():
                    await self._attempt(log, case)
            next_at = min((case.retry_at for case in self._cases.values()), default=None)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(None if next_at is None else max(next_at - self._now(), 0)):
                    await self._signal.wait()

    def _now(self) -> float:
        return self._broker.clock.monotonic()

    async def _attempt(self, log: Log, case: _Case) -> None:
        partition = self._broker.replicas.find(log.name)
        try:
            if partition is None or partition.log is not log or await self._repair(partition):
                del self._cases[log]
                return
        except Exception:
            logger.exception("%s cannot be repaired", log.name)
        self.failures += 1
        delay_s = case.postpone(self._now())
        logger.error("%s has %d damaged ranges, retrying in %.0f s", log.name, len(log.damages), delay_s)

    async def _repair(self, partition: Partition) -> bool:
        """Repair a partition from one replica after the other. Return whether no damage is left."""
        misfits = []
        for source in self._sources(partition):
            if not partition.log.damages:
                break
            try:
                await self._repair_from(source, partition)
            except (OSError, SkylogError) as error:
                logger.warning("%s is not repaired from broker %d: %s", partition.name, source.node_id, error)
                if isinstance(error, MisfitError):
                    misfits.append(source.node_id)
        if misfits and (partition.log.config.is_compacted or _has_deleted_part(partition.log)):
            await self._withdraw(partition, misfits)
        return not partition.log.damages

    async def _withdraw(self, partition: Partition, others: list[int]) -> None:
        """Leave the in-sync set, to copy the replica again, or at least let one of the others lead.

        Raises SkylogError.
        """
        metadata, node_id = self._broker.metadata, self._broker.identity.node_id
        topic = metadata.image.topics.get(partition.name.topic)
        if topic is None or topic.topic_id != partition.topic_id:
            return

        def decide(now: TopicImage) -> TopicImage:
            index, partitions = partition.name.partition, list(now.partitions)
            image, then = partitions[index], "this replica is dropped"
            partitions[index] = withdraw(image, node_id, self._broker.election_rules(now))
            if partitions[index] is image:
                partitions[index], then = hand_over(image, node_id, others, metadata.image.brokers), "one of them leads"
            if partitions[index] is image:
                return now
            logger.error("%s: others no longer have what is damaged here, so %s", partition.name, then)
            return dataclasses.replace(now, partitions=tuple(partitions))

        partition.must_copy_again = True
        await metadata.change_topic(topic, decide)

    def _sources(self, partition: Partition) -> Iterator[BrokerImage]:
        """Yield the brokers with a replica in sync, the leader first."""
        image = partition.image
        if image is None:
            return
        brokers = self._broker.metadata.image.brokers
        for node_id in dict.fromkeys((image.leader, *image.in_sync_replicas)):
            if node_id in brokers and node_id != self._broker.identity.node_id:
                yield brokers[node_id]

    async def _repair_from(self, source: BrokerImage, partition: Partition) -> None:
        """Repair what is possible from one broker. Raises the error that ended it; OSError or SkylogError."""
        peer = await Peer.connect(
            source.host,
            source.port,
            client_id=f"broker-{self._broker.identity.node_id}-repair",
            timeout_s=FETCH_TIMEOUT_S,
            security=self._broker.endpoints.peer_security,
        )
        errors: list[SkylogError] = []
        try:
            for repair in plan_repairs(partition.log):
                try:
                    await self._repair_range(peer, partition, repair)
                except SkylogError as error:  # another range may be sound there
                    errors.append(error)
                    if not peer.is_open:
                        break
        finally:
            peer.close()
        if errors:
            raise errors[0]

    async def _repair_range(self, peer: Peer, partition: Partition, repair: RangeRepair) -> None:
        while repair.missing_bytes:
            repair.add(memoryview(await self._fetch(peer, partition, repair.fetch_offset, repair.missing_bytes)))
        await asyncio.get_running_loop().run_in_executor(self._broker.executor, partition.log.run_check, repair)
        repair.finish()
        if repair.is_repaired:
            self.repaired_ranges += 1
            damage = repair.damage
            logger.info(
                "%s: offsets %d to %d, %d bytes, are repaired with the batches of %s",
                partition.name,
                damage.due_offset,
                damage.next_offset,
                damage.end - damage.position,
                peer.address,
            )

    async def _fetch(self, peer: Peer, partition: Partition, offset: int, max_bytes: int) -> bytes:
        """Return batches from `offset` on, at least one. Raises PeerError or KafkaError."""
        max_bytes = min(max_bytes, self._broker.config.broker.replica_fetch_max_bytes)
        row = FetchPartition(
            partition=partition.name.partition,
            current_leader_epoch=partition.leader_epoch,
            fetch_offset=offset,
            partition_max_bytes=max_bytes,
        )
        request = FetchRequest(
            max_wait_ms=0,
            min_bytes=1,
            max_bytes=max_bytes,
            topics=[FetchTopic(topic_id=partition.topic_id, partitions=[row])],
        )
        response: FetchResponse = await peer.ask(request, FETCH_VERSION)
        if not response.responses:
            raise KafkaError(ErrorCode.THROTTLING_QUOTA_EXCEEDED, f"{peer.address} limits the fetches of this broker")
        answer = response.responses[0].partitions[0]
        if answer.error_code:
            code = ErrorCode(answer.error_code)
            raise KafkaError(code, f"{peer.address} answers {code.name} for offset {offset} of {partition.name}")
        return bytes(answer.records or b"")


def _has_deleted_part(log: Log) -> bool:
    """Whether a damaged range begins with deleted records."""
    return any(damage.due_offset < log.log_start_offset for damage in log.damages)
