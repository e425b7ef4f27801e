"""Limits the rate at which replicas are copied that are not in sync, those of a reassignment above all (KIP-73).

A topic names the throttled replicas, those of the leaders and those of the followers. Each broker has a rate for what
it sends as a leader and one for what it fetches as a follower. Replicas in sync are never throttled, as in Kafka.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from typing import Final
from uuid import UUID

from skylog.broker.partition import Partition
from skylog.clock import Clock
from skylog.replication.token_bucket import TokenBucket

MIN_DELAY_S: Final = 0.01
MAX_DELAY_S: Final = 1.0  # the rate may change meanwhile

Key = tuple[UUID, int]


def names_replica(throttled: Sequence[str], index: int, node_id: int) -> bool:
    """Whether a list of throttled replicas, `*` or `partition:broker`, has the replica of a broker."""
    return throttled == ("*",) or f"{index}:{node_id}" in throttled


def bounded_delay_s(bucket: TokenBucket, now_s: float) -> float:
    """Return when to try again; 0 if the bucket is not empty."""
    delay_s = bucket.delay_s(now_s)
    return min(max(delay_s, MIN_DELAY_S), MAX_DELAY_S) if delay_s else 0.0


class FetchThrottle:
    """Holds back the throttled partitions that a broker fetches from one leader. The bucket is that of all leaders.

    What a fetch may return is taken from the bucket when it is sent, and what it did not return is given back. So the
    rate holds however many partitions are fetched at once. `release` is called with those to fetch now.
    """

    def __init__(
        self, node_id: int, bucket: TokenBucket, clock: Clock, release: Callable[[Iterable[Key]], None]
    ) -> None:
        self._node_id = node_id
        self._bucket = bucket
        self._clock = clock
        self._release = release
        self._held: dict[Key, None] = {}
        self.taken: dict[Key, int] = {}
        """The throttled partitions, and the bytes that their last fetch may return."""

    def update(self, key: Key, partition: Partition) -> None:
        """Throttle a partition or not, by the configuration and the in-sync set."""
        if self._is_throttled(partition):
            self.taken.setdefault(key, 0)
        else:
            self.forget(key)

    def _is_throttled(self, partition: Partition) -> bool:
        image = partition.image
        if not self._bucket.is_limited or image is None or self._node_id in image.in_sync_replicas:
            return False
        throttled = partition.log.config.follower_replication_throttled_replicas
        return names_replica(throttled, partition.name.partition, self._node_id)

    def forget(self, key: Key) -> None:
        self.settle(key, 0)
        self.taken.pop(key, None)
        if key in self._held:
            del self._held[key]
            self._release([key])

    def admit(self, keys: Iterable[Key], max_bytes: int) -> dict[Key, int]:
        """Return the partitions that may be fetched now, and up to how many bytes. The others are released later."""
        admitted = {}
        now_s = self._clock.monotonic()
        part_bytes = min(max_bytes, max(self._bucket.rate, 1))
        for key in keys:
            if key not in self.taken:
                admitted[key] = max_bytes
                continue
            self.settle(key, 0)
            delay_s = bounded_delay_s(self._bucket, now_s)
            if delay_s:
                self._hold(key, delay_s)
            else:
                self._bucket.take(part_bytes, now_s)
                admitted[key] = self.taken[key] = part_bytes
        return admitted

    def settle(self, key: Key, returned_bytes: int) -> None:
        """Note how much a fetch has returned."""
        taken = self.taken.get(key)
        if taken:
            self._bucket.give_back(taken - returned_bytes, self._clock.monotonic())
            self.taken[key] = 0

    def _hold(self, key: Key, delay_s: float) -> None:
        if not self._held:
            asyncio.get_running_loop().call_later(delay_s, self._release_held)
        self._held[key] = None

    def _release_held(self) -> None:
        held, self._held = self._held, {}
        self._release(held)
