"""A model of one partition: replicas that fetch, truncate and lead, with the real decisions and real epoch histories.

A record is a pair of its leader epoch and a number that no other record has, one per offset. Elections are clean, and
no replica loses what it has written: whatever goes wrong here, replication has done. `Mends` has the decisions, so that
a test can undo one of them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from random import Random
from typing import NamedTuple

from skylog.cluster import PartitionImage
from skylog.cluster.elections import ElectionRules, joining_offset
from skylog.cluster.image import NO_LEADER
from skylog.model import NO_EPOCH
from skylog.replication import LeaderState, divergence, truncation_offset
from skylog.replication.divergence import EpochEnd
from skylog.storage.leader_epochs import LeaderEpochs

NODES = (1, 2, 3)
RULES = ElectionRules(min_in_sync=1, allow_unclean=False)
FETCHED_AT_ONCE = 2
HEALED_WITHIN = 50


class Record(NamedTuple):
    epoch: int
    number: int


def find_divergence(leader: Replica, offset: int, epoch: int) -> EpochEnd | None:
    return divergence(leader.epochs, leader.end_offset, leader.epoch, offset, epoch)


def find_truncation(follower: Replica, leader: EpochEnd) -> int:
    return truncation_offset(follower.epochs, follower.end_offset, leader)


def find_joining_offset(image: PartitionImage, high_watermark: int, leading: LeaderState) -> int:
    return joining_offset(
        image, RULES, high_watermark=high_watermark, epoch_start_offset=leading.epoch_start, log_end_offset=0
    )


Divergence = Callable[["Replica", int, int], EpochEnd | None]
Truncation = Callable[["Replica", EpochEnd], int]
Joining = Callable[[PartitionImage, int, LeaderState], int]


@dataclass(frozen=True)
class Mends:
    """What others have mended. Each can be replaced by what they had before."""

    divergence: Divergence = find_divergence
    truncation_offset: Truncation = find_truncation
    joining_offset: Joining = find_joining_offset
    truncates_to_the_watermark_in_a_new_epoch: bool = False
    looks_for_a_divergence_in_each_fetch: bool = True
    truncates_the_history_at_the_end: bool = True
    truncates_before_the_watermark: bool = True
    records_only_what_agrees: bool = True


class Replica:
    """One replica. `epoch` is the leader epoch that it knows of, `leading` its state as the leader in that epoch."""

    def __init__(self, node_id: int, directory: Path) -> None:
        self.node_id = node_id
        self.records: list[Record] = []
        self.epochs = LeaderEpochs(directory)
        self.epoch = NO_EPOCH
        self.leader = NO_LEADER
        self.high_watermark = 0
        self.has_agreed = False  # with the leader, in its last fetch from the same broker
        self.leading: LeaderState | None = None
        self.is_live = True

    @property
    def end_offset(self) -> int:
        return len(self.records)

    def append(self, records: list[Record]) -> None:
        for record in records:
            self.epochs.begin(record.epoch, self.end_offset)
            self.records.append(record)

    def truncate_to(self, offset: int, mends: Mends) -> None:
        if offset < self.end_offset or mends.truncates_the_history_at_the_end:
            self.epochs.truncate_to(offset)
        del self.records[offset:]
        self.high_watermark = min(self.high_watermark, offset)


class ReplicaWorld:
    """A partition on three brokers. `image` is its state in the metadata store; replicas learn of it late."""

    def __init__(self, directory: Path, mends: Mends | None = None) -> None:
        self.mends = mends or Mends()
        self.image = PartitionImage(1, 0, NODES, NODES)
        self.committed: list[Record] = []
        self._numbers = count()
        self.replicas: dict[int, Replica] = {}
        for node_id in NODES:
            folder = directory / str(node_id)
            folder.mkdir(parents=True)
            self.replicas[node_id] = Replica(node_id, folder)
            self.learn(node_id)

    # -- what happens

    def learn(self, node_id: int) -> None:
        """A broker gets the state of the partition from the store."""
        replica, image = self.replicas[node_id], self.image
        if not replica.is_live:
            return
        if image.leader != node_id:
            replica.leading = None
            if image.leader_epoch != replica.epoch and self.mends.truncates_to_the_watermark_in_a_new_epoch:
                replica.truncate_to(replica.high_watermark, self.mends)
        elif replica.leading is None or replica.epoch != image.leader_epoch:
            replica.leading = LeaderState(node_id, replica.end_offset)
        replica.has_agreed &= replica.leader == image.leader
        replica.epoch, replica.leader = image.leader_epoch, image.leader
        if replica.leading is not None:
            replica.leading.update(image.replicas, image.in_sync_replicas, 1, 0.0)
            self._advance(replica)

    def append(self, node_id: int) -> None:
        """A broker that takes itself for the leader appends a record."""
        replica = self.replicas[node_id]
        if replica.leading is not None and replica.is_live:
            replica.append([Record(replica.epoch, next(self._numbers))])
            self._advance(replica)

    def fail_to_append(self, node_id: int) -> None:
        """The first append of a leader fails after its epoch was stored."""
        replica = self.replicas[node_id]
        if replica.leading is not None and replica.is_live:
            replica.epochs.begin(replica.epoch, replica.end_offset)

    def fetch_in_vain(self, node_id: int) -> None:
        """A follower fetches, but the response is lost."""
        self.fetch(node_id, is_answered=False)

    def fetch(self, node_id: int, *, is_answered: bool = True) -> None:
        """A follower fetches from the leader that it knows of, if that is of the same opinion."""
        follower = self.replicas[node_id]
        leader = self.replicas.get(follower.leader)
        if leader is None or leader is follower or not (leader.is_live and follower.is_live):
            return
        if leader.leading is None or leader.epoch != follower.epoch:
            return
        diverging = None
        if self.mends.looks_for_a_divergence_in_each_fetch or not follower.has_agreed:
            diverging = self.mends.divergence(leader, follower.end_offset, follower.epochs.latest)
        follower.has_agreed = diverging is None
        if diverging is None or not self.mends.records_only_what_agrees:
            leader.leading.followers[node_id].fetched(1, follower.end_offset, 0, leader.end_offset, 0.0)
            self._advance(leader)
        if not is_answered:
            return
        if diverging is None:
            follower.append(leader.records[follower.end_offset : follower.end_offset + FETCHED_AT_ONCE])
            self._follow_watermark(follower, leader)
            return
        if not self.mends.truncates_before_the_watermark:
            self._follow_watermark(follower, leader)
        follower.truncate_to(self.mends.truncation_offset(follower, diverging), self.mends)

    def elect(self, node_id: int) -> None:
        """A controller elects a replica that is in sync."""
        if self.replicas[node_id].is_live and node_id in self.image.in_sync_replicas:
            self._change(leader=node_id, leader_epoch=self.image.leader_epoch + 1)
            log = self.replicas[node_id].records
            assert log[: len(self.committed)] == self.committed, "a leader was elected that lacks committed records"

    def shrink(self, node_id: int) -> None:
        """The leader removes a follower from the in-sync set."""
        leader = self._leader()
        if leader is not None and node_id != leader.node_id:
            self._change(in_sync_replicas=tuple(each for each in self.image.in_sync_replicas if each != node_id))
            self.learn(leader.node_id)

    def join(self, node_id: int) -> None:
        """The leader adds a follower that has caught up."""
        leader = self._leader()
        if leader is None or leader.leading is None or node_id not in leader.leading.followers:
            return
        offset = self.mends.joining_offset(self.image, leader.high_watermark, leader.leading)
        live = {each.node_id: 1 for each in self.replicas.values() if each.is_live}
        if leader.leading.may_join(node_id, offset, live):
            self._change(in_sync_replicas=(*self.image.in_sync_replicas, node_id))
            self.learn(leader.node_id)

    def die(self, node_id: int) -> None:
        """A broker stops. It keeps what it has written."""
        self.replicas[node_id].is_live = False
        self.replicas[node_id].leading = None
        rest = tuple(each for each in self.image.in_sync_replicas if each != node_id)
        if rest:
            self._change(in_sync_replicas=rest)
        if self.image.leader == node_id:
            self._change(leader=NO_LEADER, leader_epoch=self.image.leader_epoch + 1)

    def live(self, node_id: int) -> None:
        replica = self.replicas[node_id]
        if not replica.is_live:
            replica.is_live, replica.epoch, replica.has_agreed = True, NO_EPOCH, False

    # -- what must be true

    def check(self) -> None:
        """Equal offsets and epochs mean equal logs up to there."""
        logs = [each.records for each in self.replicas.values()]
        for one in logs:
            for other in logs:
                for offset, (mine, theirs) in enumerate(zip(one, other, strict=False)):
                    if mine != theirs:
                        shared = {(at, r.epoch) for at, r in enumerate(one) if at >= offset}
                        assert not shared & {(at, r.epoch) for at, r in enumerate(other) if at >= offset}, "diverged"
                        break

    def heal(self) -> None:
        """All brokers come back, and fetch until they have the same."""
        for node_id in NODES:
            self.live(node_id)
        self.elect(self.image.in_sync_replicas[0])
        for node_id in NODES:
            self.learn(node_id)
        for _ in range(HEALED_WITHIN):
            for node_id in NODES:
                self.fetch(node_id)
        self.check()
        leader = self._leader()
        assert leader is not None
        for replica in self.replicas.values():
            assert replica.records == leader.records, "a follower does not get what the leader has"
            assert replica.high_watermark <= replica.end_offset
        assert leader.records[: len(self.committed)] == self.committed

    # -- parts

    def _leader(self) -> Replica | None:
        """Return the leader if it knows that it is."""
        leader = self.replicas.get(self.image.leader)
        if leader is None or leader.leading is None or leader.epoch != self.image.leader_epoch:
            return None
        return leader

    def _change(self, **state: object) -> None:
        values = {name: getattr(self.image, name) for name in PartitionImage.__slots__}
        self.image = PartitionImage(**{**values, **state})

    def _advance(self, leader: Replica) -> None:
        assert leader.leading is not None
        watermark = leader.leading.high_watermark(leader.end_offset)
        leader.high_watermark = max(leader.high_watermark, watermark)
        committed = leader.records[: leader.high_watermark]
        shorter = min(len(committed), len(self.committed))
        assert committed[:shorter] == self.committed[:shorter], "other records are committed at the same offsets"
        if len(committed) > len(self.committed):
            self.committed = committed

    def _follow_watermark(self, follower: Replica, leader: Replica) -> None:
        watermark = min(leader.high_watermark, follower.end_offset)
        follower.high_watermark = max(follower.high_watermark, watermark)
        visible = follower.records[: follower.high_watermark]
        assert visible == self.committed[: len(visible)], "an uncommitted record is visible"


Action = Callable[[ReplicaWorld, int], None]
ACTIONS: dict[str, Action] = {
    name: getattr(ReplicaWorld, name)
    for name in (
        "append",
        "fetch",
        "learn",
        "elect",
        "shrink",
        "join",
        "die",
        "live",
        "fail_to_append",
        "fetch_in_vain",
    )
}
_WEIGHTS = {"append": 6, "fetch": 12, "learn": 8, "elect": 3, "join": 4}


def live_through(world: ReplicaWorld, life: str) -> None:
    """Let a life happen, written as `append 1; fetch 2; …`, and heal."""
    for step in life.split(";"):
        name, node_id = step.split()
        ACTIONS[name](world, int(node_id))
        world.check()
    world.heal()


def random_life(rng: Random, steps: int) -> str:
    names = rng.choices(list(ACTIONS), [_WEIGHTS.get(name, 1) for name in ACTIONS], k=steps)
    return "; ".join(f"{name} {rng.choice(NODES)}" for name in names)
