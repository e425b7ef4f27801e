"""The mirrors of this broker's cluster: follows their definitions, and runs them as far as this broker leads.

A partition of a mirror topic refuses what clients send, from the moment this broker leads it. When the topic is
promoted, the leader of each partition stops copying, aborts the transactions that the source has left open, notes in
the metadata store that it has finished, and then accepts records.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from random import Random
from typing import TYPE_CHECKING, Any, Final

from skylog.broker.partition import Partition
from skylog.cluster import ClusterImage, MetadataStore
from skylog.cluster.metadata import PRODUCER_ID_BLOCK
from skylog.cluster.mirrors import StoredMirrors
from skylog.cluster.store import Value
from skylog.errors import ConfigError, ErrorCode, KafkaError, SkylogError
from skylog.replication.mirror import Mirror, MirrorTopic, TopicState

if TYPE_CHECKING:
    from skylog.broker.broker import Broker
    from skylog.broker.mirroring.copier import MirrorCopier

logger = logging.getLogger(__name__)

RETRY_S: Final = 0.5
PROMOTION_PATIENCE_S: Final = 30.0
_FIRST_OWN_BLOCK: Final = 1 << 32  # producer ids, in blocks: those of a cluster without mirrors stay far below
_LAST_OWN_BLOCK: Final = 1 << 50

Change = Callable[[Mirror | None], Mirror | None]


class Mirrors:
    """All mirrors. `load` them before the broker serves clients, and `start` them when it does."""

    def __init__(self, broker: Broker, store: MetadataStore, random: Random) -> None:
        self._broker = broker
        self._random = random
        self._stored = StoredMirrors(store)
        self._mirrors: dict[str, Mirror] = {}
        self._owners: dict[str, tuple[Mirror, MirrorTopic]] = {}  # by topic of this cluster
        self._copiers: dict[str, MirrorCopier] = {}
        self._stopping: set[asyncio.Task[None]] = set()
        self._promotion: asyncio.Task[None] | None = None
        self._is_running = False
        self._failures = 0

    @property
    def failures(self) -> int:
        return self._failures + sum(each.failures for each in self._copiers.values())

    async def load(self) -> None:
        """Follow the definitions, and refuse what clients send to mirror topics."""
        self._broker.replicas.on_assignment(self._assigned)
        self._broker.metadata.listen(self._on_image)
        await self._stored.follow(self._update)

    def start(self) -> None:
        self._is_running = True
        self._apply()

    async def stop(self) -> None:
        self._is_running = False
        if self._promotion is not None:
            self._promotion.cancel()
            await asyncio.gather(self._promotion, return_exceptions=True)
        copiers, self._copiers = self._copiers, {}
        await asyncio.gather(*(each.stop() for each in copiers.values()), *self._stopping, return_exceptions=True)

    # -- definitions

    def get(self, name: str) -> Mirror:
        mirror = self._mirrors.get(name)
        if mirror is None:
            raise KafkaError(ErrorCode.RESOURCE_NOT_FOUND, f"there is no mirror '{name}'; see skylog mirror list")
        return mirror

    def all(self) -> list[Mirror]:
        return [self._mirrors[name] for name in sorted(self._mirrors)]

    def copier(self, name: str) -> MirrorCopier | None:
        """Return what runs a mirror here, None if it is paused."""
        return self._copiers.get(name)

    def copiers(self) -> list[MirrorCopier]:
        return list(self._copiers.values())

    def owner(self, topic: str) -> Mirror | None:
        """Return the mirror that a topic of this cluster belongs to, until it is promoted."""
        found = self._owners.get(topic)
        return None if found is None or found[1].state is TopicState.PROMOTED else found[0]

    def check_may_write(self, topic: str) -> None:
        """Raise POLICY_VIOLATION for a topic that is a mirror."""
        owner = self.owner(topic)
        if owner is not None:
            raise KafkaError(ErrorCode.POLICY_VIOLATION, _refusal(topic, owner))

    async def change(self, name: str, decide: Change) -> None:
        """Replace a mirror by what `decide` makes of it; None for one that does not exist, or should not any more."""

        def decide_value(value: Value | None) -> Value | None:
            before = None if value is None else Mirror.from_value(value)
            after = decide(before)
            return value if after is before else None if after is None else after.to_value()

        await self._stored.change(name, decide_value)

    async def create(self, mirror: Mirror) -> None:
        """Add a mirror after its source was reached once. Raises KafkaError."""
        if mirror.name in self._mirrors:
            raise KafkaError(ErrorCode.DUPLICATE_RESOURCE, f"there is a mirror '{mirror.name}' already")
        try:
            mirror.check()
            from skylog.broker.mirroring.source import Source  # a broker without mirrors starts without it

            source = Source(mirror, f"skylog-mirror-{mirror.name}")
            try:
                self.check_source((await source.load()).cluster_id)
            finally:
                source.close()
        except ConfigError as error:
            raise KafkaError(ErrorCode.INVALID_CONFIG, str(error)) from error
        except KafkaError:
            raise
        except SkylogError as error:
            raise KafkaError(ErrorCode.BROKER_NOT_AVAILABLE, f"cannot reach the source: {error}") from error
        # Producers keep the ids that they have at the source. Those of this cluster must be others.
        block = self._random.randrange(_FIRST_OWN_BLOCK, _LAST_OWN_BLOCK)
        if not self._mirrors:
            await self._broker.metadata.move_producer_ids(block * PRODUCER_ID_BLOCK)
        await self.change(mirror.name, lambda current: current or mirror)

    def check_source(self, cluster_id: str) -> None:
        if cluster_id == self._broker.identity.cluster_id:
            raise KafkaError(ErrorCode.INVALID_CONFIG, "the source is this cluster itself: a mirror needs another one")

    async def set_paused(self, name: str, is_paused: bool) -> None:
        self.get(name)
        await self.change(name, lambda current: current and replace(current, is_paused=is_paused))

    async def promote(self, name: str, topics: list[str] | None, *, ends: bool = False) -> None:
        """Begin to promote topics, by default all. With `ends` the mirror is removed afterwards."""
        self.get(name)

        def decide(current: Mirror | None) -> Mirror | None:
            if current is None:
                return None
            try:
                promoted = current.promote(topics)
            except ConfigError as error:
                raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, str(error)) from error
            promoted = replace(promoted, is_ending=current.is_ending or ends)
            return None if promoted.has_ended else promoted

        await self.change(name, decide)

    # -- what they mean for this broker

    def _update(self, values: Mapping[str, Value]) -> None:
        had_any = bool(self._mirrors)
        self._mirrors = {name: Mirror.from_value(value) for name, value in values.items()}
        self._owners = _owners(self._mirrors.values())
        if self._mirrors and not had_any:
            self._broker.metadata.drop_producer_ids()
        self._apply()

    def _apply(self) -> None:
        for partition in self._broker.replicas.all():
            self._refuse_clients(partition)
        if not self._is_running:
            return
        for name, copier in list(self._copiers.items()):
            mirror = self._mirrors.get(name)
            if mirror is None or mirror.is_paused or _endpoint(mirror) != _endpoint(copier.mirror):
                del self._copiers[name]
                self._stop_later(copier)
            else:
                copier.update(mirror)
        for name, mirror in self._mirrors.items():
            if name not in self._copiers and not mirror.is_paused:
                from skylog.broker.mirroring.copier import MirrorCopier  # a broker without mirrors starts without it

                self._copiers[name] = MirrorCopier(self._broker, self, mirror)
        for topic in self._owners:
            for partition in self._broker.replicas.of_topic(topic):
                self._consider(partition)
        self._promote_soon()

    def _stop_later(self, copier: MirrorCopier) -> None:
        task = asyncio.create_task(copier.stop())
        self._stopping.add(task)
        task.add_done_callback(self._stopping.discard)

    def _assigned(self, partition: Partition) -> None:
        self._refuse_clients(partition)
        if self._is_running and partition.name.topic in self._owners:
            self._consider(partition)
            self._promote_soon()

    def _on_image(self, before: ClusterImage, now: ClusterImage) -> None:
        if self._is_running and any(name not in now.topics for name in self._owners if name in before.topics):
            self._promote_soon()

    def _refuse_clients(self, partition: Partition) -> None:
        found = self._owners.get(partition.name.topic)
        is_owned = found is not None and found[1].owns(partition.name.partition)
        partition.refusal = _refusal(partition.name.topic, found[0]) if found is not None and is_owned else None

    def _consider(self, partition: Partition) -> None:
        copier = self._copiers.get(self._owners[partition.name.topic][0].name)
        if copier is not None:
            copier.consider(partition)

    # -- promotion

    def _promote_soon(self) -> None:
        if self._unfinished() and (self._promotion is None or self._promotion.done()):
            self._promotion = asyncio.create_task(self._promote_all())

    def _unfinished(self) -> dict[str, list[Partition]]:
        """Return the topics to promote, with the partitions that this broker leads and has not finished.

        For the controller that includes topics that do not exist any more.
        """
        is_controller = self._broker.metadata.image.controller_id == self._broker.identity.node_id
        found = {}
        for name, (_, topic) in self._owners.items():
            if topic.state is not TopicState.PROMOTING:
                continue
            led = [
                each
                for each in self._broker.replicas.of_topic(name)
                if each.is_leader and each.name.partition not in topic.finished
            ]
            if led or (is_controller and name not in self._broker.metadata.image.topics):
                found[name] = led
        return found

    async def _promote_all(self) -> None:
        while unfinished := self._unfinished():
            for name, partitions in unfinished.items():
                try:
                    await self._finish_topic(name, partitions)
                except (SkylogError, OSError, TimeoutError) as error:
                    logger.warning("topic %s cannot be promoted yet: %s", name, error or "its replicas take too long")
                    await asyncio.sleep(RETRY_S)
                except Exception:
                    self._failures += 1
                    logger.exception("topic %s cannot be promoted yet", name)
                    await asyncio.sleep(RETRY_S)

    async def _finish_topic(self, name: str, partitions: list[Partition]) -> None:
        owner = self._owners[name][0].name
        done = [each.name.partition for each in partitions if await self._end_transactions(each)]
        image = self._broker.metadata.image.topics.get(name)

        def decide(current: Mirror | None) -> Mirror | None:
            if current is None or name not in current.mirrored:
                return current
            changed = (
                current.without_topic(name) if image is None else current.finish(name, done, len(image.partitions))
            )
            return None if changed.has_ended else changed

        await self.change(owner, decide)
        logger.info("mirror %s: promoted the partitions %s of topic %s", owner, done, name)

    async def _end_transactions(self, partition: Partition) -> bool:
        """Abort open transactions, and wait until that is committed. Return whether the partition is still led here.

        It may have got another leader, who finished it, since it was found to be unfinished.
        """
        if not partition.is_leader or partition.refusal is None:
            return False
        end_offset = partition.abort_open_transactions(self._broker.clock.now_ms())
        replicated: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def done(error: KafkaError | None) -> None:
            if not replicated.done():
                replicated.set_exception(error) if error else replicated.set_result(None)

        partition.when_replicated(end_offset, done)
        async with asyncio.timeout(PROMOTION_PATIENCE_S):
            if partition.log.must_flush:
                await self._broker.flusher.flushed(partition.log)
            await replicated
        return partition.is_leader

    # -- what clients see

    def describe(self, mirror: Mirror) -> dict[str, Any]:
        """Return what this broker knows of a mirror: its definition, and the partitions that it leads."""
        copier = self._copiers.get(mirror.name)
        now_s = self._broker.clock.monotonic()
        rows = [
            self._describe_partition(partition, topic, copier, now_s)
            for target, topic in sorted(mirror.mirrored.items())
            for partition in self._broker.replicas.of_topic(target)
            if partition.is_leader
        ]
        return mirror.describe() | {
            "mirrored": {
                target: {"source": topic.source, "state": topic.state.value}
                for target, topic in sorted(mirror.mirrored.items())
            },
            "partitions": rows,
            "problems": dict(copier.keeper.problems) if copier is not None else {},
            "error": copier.error if copier is not None else "",
            "groups_copied": copier.groups.copied if copier is not None else 0,
            "groups_error": copier.groups.error if copier is not None else "",
        }

    def _describe_partition(
        self, partition: Partition, topic: MirrorTopic, copier: MirrorCopier | None, now_s: float
    ) -> dict[str, Any]:
        mirrored = copier.partitions.get(partition.name) if copier is not None else None
        row: dict[str, Any] = {
            "topic": partition.name.topic,
            "partition": partition.name.partition,
            "offset": partition.log.log_end_offset,
            "start_offset": partition.log.log_start_offset,
            "high_watermark": partition.high_watermark,
        }
        if mirrored is None:
            state = topic.state.value
            if topic.state is TopicState.MIRRORING:
                state = "paused" if copier is None else "starting"
            elif topic.state is TopicState.PROMOTING and not topic.owns(partition.name.partition):
                state = TopicState.PROMOTED.value
            return row | {"status": state, "source_offset": None, "lag": None, "lag_s": None, "skipped": 0, "error": ""}
        progress = mirrored.progress
        return row | {
            "status": progress.status.value,
            "source_offset": progress.source_end,
            "lag": progress.lag,
            "lag_s": round(progress.lag_s(now_s), 3),
            "skipped": progress.skipped,
            "error": "" if progress.is_attached else progress.last_error,
        }


def _owners(mirrors: Iterable[Mirror]) -> dict[str, tuple[Mirror, MirrorTopic]]:
    """Return the mirror of each topic. One that has promoted the topic, before another took it on, does not count."""
    owners: dict[str, tuple[Mirror, MirrorTopic]] = {}
    for mirror in mirrors:
        for target, topic in mirror.mirrored.items():
            if target not in owners or topic.state is not TopicState.PROMOTED:
                owners[target] = (mirror, topic)
    return owners


def _endpoint(mirror: Mirror) -> tuple[object, ...]:
    return mirror.source, dict(mirror.client), mirror.topics, mirror.groups, mirror.prefix


def _refusal(topic: str, mirror: Mirror) -> str:
    return (
        f"topic '{topic}' is a mirror of {mirror.source}: write there, or make it writable with "
        f"'skylog mirror promote {mirror.name}'"
    )
