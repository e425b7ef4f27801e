"""Looks into the brokers of a run at every step, and notes what must never be, whether or not a client ever sees it.

A defect of replication harms clients only if further faults come at the right moment. `Watch` does not wait for those.
It knows what has been committed in each partition, and checks whenever a watermark rises, a log is cut, a replica joins
an in-sync set, or the metadata store changes:

* a leader commits what all replicas in sync have, and nobody else commits anything else at the same offset;
* a follower raises its watermark over committed batches only, and never cuts off one;
* a replica in an in-sync set, or about to join it, has everything that is committed;
* a leader knows where each epoch of its followers ends;
* the epochs of a partition go up, and each has one leader;
* a follower gets no batch of a later epoch than it fetched in;
* a log that is to be cut because it diverges gets shorter, in offsets or in epochs;
* the watermark of a log is between its start and its end.

It only reads, and schedules nothing, so a run has the same trace with it. Compacted logs are left to the checks at the
end.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final
from uuid import UUID

from skylog.broker.partition import Partition
from skylog.broker.replication import fetcher
from skylog.broker.replication.in_sync_sets import InSyncSets
from skylog.cluster import PartitionImage, TopicImage
from skylog.cluster.embedded import EmbeddedStore
from skylog.cluster.metadata import TOPICS
from skylog.errors import SkylogError
from skylog.records import iterate_batches
from skylog.simulation.process import current_process
from skylog.simulation.seams import Patches
from skylog.simulation.world import World

MAX_IDLE_CUTS: Final = 10
_ALL_BYTES: Final = 1 << 30

Batches = dict[int, tuple[int, int]]
"""The leader epoch and the CRC of batches, by base offset. The CRC does not cover the epoch."""


@dataclass
class Committed:
    """What has been committed in a partition: everything below `end`."""

    end: int = 0
    batches: Batches = field(default_factory=dict)


class Watch:
    """Adds what it finds to the problems of a world. That ends the run: what would follow only hides it."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._committed: dict[tuple[UUID, int], Committed] = {}
        self._images: dict[str, tuple[int, TopicImage]] = {}
        self._found: set[tuple[str, str]] = set()
        self._idle_cuts: dict[tuple[str, str], int] = {}
        self._leaders: dict[tuple[UUID, int], tuple[int, int]] = {}

    def install(self, patches: Patches) -> None:
        """Look at every step from now on. Call this when everything else is replaced."""
        self._watch_partitions(patches)
        self._watch_changes(patches)

    def _watch_partitions(self, patches: Patches) -> None:
        advance, truncate, restart = Partition.advance_high_watermark, Partition.truncate_to, Partition.restart_at
        append = Partition.append_from_leader

        def watched_advance(partition: Partition, offset: int) -> None:
            before = partition.high_watermark
            advance(partition, offset)
            if partition.high_watermark > before:
                self._advanced(partition, before)

        def watched_truncate(partition: Partition, offset: int, now_ms: int) -> list[Path]:
            self._truncating(partition, offset)
            before = partition.log.log_end_offset, partition.log.epochs.latest
            paths = truncate(partition, offset, now_ms)
            self._truncated(partition, before)
            self._check_bounds(partition)
            return paths

        def watched_restart(partition: Partition, offset: int, now_ms: int) -> list[Path]:
            paths = restart(partition, offset, now_ms)
            self._check_bounds(partition)
            return paths

        def watched_append(partition: Partition, data: memoryview, leader_epoch: int, now_ms: int) -> None:
            try:
                append(partition, data, leader_epoch, now_ms)
            finally:  # a part may be stored
                if partition.log.epochs.latest > leader_epoch:
                    self._note("later", partition, f"{_here()} fetched in epoch {leader_epoch}, and has a later one")

        patches.setattr(Partition, "append_from_leader", watched_append)
        patches.setattr(Partition, "advance_high_watermark", watched_advance)
        patches.setattr(Partition, "truncate_to", watched_truncate)
        patches.setattr(Partition, "restart_at", watched_restart)

    def _watch_changes(self, patches: Patches) -> None:
        find: Any = vars(fetcher)["truncation_offset"]
        propose, commit = InSyncSets._propose, EmbeddedStore.commit

        def watched_find(epochs: Any, log_end_offset: int, leader: Any) -> int:
            if leader.end_offset < 0:
                self._note("epoch", "a log", f"{_here()}: its leader does not know where epoch {epochs.latest} ends")
            offset: int = find(epochs, log_end_offset, leader)
            return offset

        def watched_propose(sets: InSyncSets, partition: Partition, change: Any) -> None:
            if change.adding is not None:
                self._joining(partition, change.adding[0])
            propose(sets, partition, change)

        async def watched_commit(store: EmbeddedStore, session: Any, operations: Sequence[Any]) -> None:
            await commit(store, session, operations)
            self._check_epochs([each.path for each in operations])
            self.check_in_sync_sets()

        patches.setattr(fetcher, "truncation_offset", watched_find)
        patches.setattr(InSyncSets, "_propose", watched_propose)
        patches.setattr(EmbeddedStore, "commit", watched_commit)

    # -- what is committed

    def _advanced(self, partition: Partition, before: int) -> None:
        """A watermark has risen. That of a leader says what is committed."""
        self._check_bounds(partition)
        if partition.log.config.is_compacted:
            return
        end = partition.high_watermark
        own = _batches(partition, before, end)
        known = self._of(partition)
        if own is None:
            known.end = max(known.end, end) if partition.is_leader else known.end
            return
        for offset, batch in own.items():
            if known.batches.get(offset, batch) != batch and not self._world.has_damage:
                self._note("other", partition, f"{_here()} takes another batch at offset {offset} for committed")
        if partition.is_leader:
            known.batches.update(own)
            known.end = max(known.end, end)
            self._check_members(partition, own, end)
        elif end > known.end:
            self._note("above", partition, f"{_here()} has the watermark {end}, but {known.end} is committed")

    def _check_members(self, partition: Partition, own: Batches, end: int) -> None:
        """Every replica in sync has what the leader commits."""
        image = self._image(partition)
        if image is None or image.leader_epoch != partition.leader_epoch or self._world.has_damage:
            return
        for node_id in image.in_sync_replicas:
            replica = self._replica(node_id, partition)
            if replica is None or replica is partition or replica.log.failure is not None:
                continue
            start = min(own, default=end)
            theirs = _batches(replica, start, end) if replica.log.log_end_offset >= end else {}
            missing = [each for each in own if theirs is not None and theirs.get(each) != own[each]]
            if missing and replica.log.log_start_offset <= missing[0]:
                self._note(
                    "commit", partition, f"{_here()} commits offset {missing[0]}, which broker-{node_id} does not have"
                )

    def _truncating(self, partition: Partition, offset: int) -> None:
        known = self._of(partition)
        if partition.log.config.is_compacted or offset >= known.end or self._world.has_damage:
            return
        own = _batches(partition, offset, known.end) or {}
        lost = [each for each, batch in own.items() if each >= offset and known.batches.get(each) == batch]
        if lost:
            self._note("cut", partition, f"{_here()} cuts off offset {lost[0]}, which is committed")

    def _truncated(self, partition: Partition, before: tuple[int, int]) -> None:
        """A leader may say twice where the logs part, but not again and again."""
        where = _here(), str(partition.name)
        is_same = before == (partition.log.log_end_offset, partition.log.epochs.latest)
        self._idle_cuts[where] = self._idle_cuts.get(where, 0) + 1 if is_same else 0
        if self._idle_cuts[where] > MAX_IDLE_CUTS:
            self._note("cuts nothing", partition, f"{_here()} shall cut its log again and again, and stays at {before}")

    # -- who is in sync

    def _joining(self, partition: Partition, node_id: int) -> None:
        """A leader wants to add a follower, because of what it knows of it."""
        image, leading = self._image(partition), partition.leading
        if image is None or leading is None or image.leader_epoch != partition.leader_epoch:
            return
        end, reached = self._of(partition).end, leading.followers[node_id].end_offset
        if reached < end:
            self._note(
                "join", partition, f"{_here()} adds broker-{node_id} at offset {reached}, but {end} is committed"
            )

    def _check_epochs(self, paths: Sequence[str]) -> None:
        """The epoch of a partition never goes back, and has one leader."""
        for path in paths:
            topic = self._topic(path.removeprefix(TOPICS)) if path.startswith(TOPICS) else None
            for index, image in enumerate(topic.partitions if topic is not None else ()):
                assert topic is not None
                key = topic.topic_id, index
                epoch, leader = self._leaders.get(key, (image.leader_epoch, image.leader))
                if image.leader_epoch < epoch or (image.leader_epoch == epoch and image.leader != leader):
                    name = f"{topic.name}-{index}"
                    was = f"epoch {epoch} with the leader {leader}"
                    self._note("epochs", name, f"epoch {image.leader_epoch} with {image.leader} comes after {was}")
                self._leaders[key] = image.leader_epoch, image.leader

    def check_in_sync_sets(self) -> None:
        """Every replica in sync has everything that is committed. A process that is not ready is not asked."""
        for path in self._world.sessions.store.entries(TOPICS):
            topic = self._topic(path.removeprefix(TOPICS))
            for index, image in enumerate(topic.partitions if topic is not None else ()):
                assert topic is not None
                for node_id in image.in_sync_replicas:
                    self._check_member(topic, index, node_id)

    def _check_member(self, topic: TopicImage, index: int, node_id: int) -> None:
        broker = self._world.machines[node_id].broker
        replica = broker.replicas._by_topic.get(topic.name, {}).get(index) if broker is not None else None
        if replica is None or replica.topic_id != topic.topic_id or replica.log.failure is not None:
            return
        known, reached = self._of(replica), replica.log.log_end_offset
        if reached < known.end:
            self._note(
                "member", replica, f"broker-{node_id} is in sync and ends at {reached}, but {known.end} is committed"
            )

    # -- the rest

    def _check_bounds(self, partition: Partition) -> None:
        log = partition.log
        if not log.log_start_offset <= log.high_watermark <= log.log_end_offset:
            held = f"{log.log_start_offset} to {log.log_end_offset}"
            self._note("bounds", partition, f"{_here()} holds {held}, with the watermark {log.high_watermark}")

    def _of(self, partition: Partition) -> Committed:
        return self._committed.setdefault((partition.topic_id, partition.name.partition), Committed())

    def _topic(self, name: str) -> TopicImage | None:
        """Return a topic as the metadata store has it."""
        path = TOPICS + name
        entry = self._world.sessions.store._entries.get(path)
        if entry is None:
            return None
        known = self._images.get(path)
        if known is None or known[0] != entry.version or str(known[1].topic_id) != entry.value["id"]:
            known = self._images[path] = entry.version, TopicImage.from_value(name, entry.value, entry.version)
        return known[1]

    def _image(self, partition: Partition) -> PartitionImage | None:
        topic = self._topic(partition.name.topic)
        is_same = topic is not None and topic.topic_id == partition.topic_id
        return topic.partitions[partition.name.partition] if topic is not None and is_same else None

    def _replica(self, node_id: int, partition: Partition) -> Partition | None:
        broker = self._world.machines[node_id].broker
        replica = broker.replicas.find(partition.name) if broker is not None else None
        return replica if replica is not None and replica.topic_id == partition.topic_id else None

    def _note(self, kind: str, where: Partition | str, what: str) -> None:
        name = where if isinstance(where, str) else str(where.name)
        if (kind, name) not in self._found:
            self._found.add((kind, name))
            self._world.trace.add("watch", f"{name}: {what}")
            self._world.problems.append(f"inside: {name}: {what}")
            self._world.loop.is_over = True


def _here() -> str:
    process = current_process()
    return process.name if process is not None else "-"


def _batches(partition: Partition, start: int, end: int) -> Batches | None:
    """Return the batches of a log between two offsets; None if they cannot be read now."""
    log = partition.log
    start, end = max(start, log.log_start_offset), min(end, log.log_end_offset)
    found: Batches = {}
    try:
        while start < end:
            part = log.read_as_replica(start, _ALL_BYTES, True)
            if part is None or not part.length:
                break
            headers = [header for _, header in iterate_batches(part.read())]
            if not headers or headers[-1].end_offset <= start:
                return None  # it is damaged
            start = headers[-1].end_offset
            for header in headers:
                if header.base_offset < end:
                    found[header.base_offset] = header.partition_leader_epoch, header.crc
    except (SkylogError, OSError):
        return None
    return found
