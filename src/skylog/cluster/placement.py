"""Assigns the replicas of new partitions to brokers, as Kafka does.

The brokers form a ring in which racks alternate. The first replicas of consecutive partitions are on consecutive
brokers of the ring. The other replicas follow at a distance that changes after each round, so that the followers of one
broker are spread over all others. Start and distance are random, so topics with few partitions are spread, too.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from itertools import chain, islice, zip_longest
from math import gcd
from random import Random

from skylog.errors import ErrorCode, KafkaError


def place(
    brokers: Sequence[tuple[int, str | None]],
    partitions: int,
    replication_factor: int,
    rng: Random,
    first_partition: int = 0,
    first_broker: int | None = None,
) -> list[list[int]]:
    """Return the replicas of each new partition. `brokers` are ids and racks.

    Replicas are on as many racks as possible if all brokers have a rack; otherwise racks are ignored. To continue an
    existing topic, pass the number of its partitions as `first_partition`, and the first replica of its partition 0 as
    `first_broker`. Raises INVALID_REPLICATION_FACTOR.
    """
    _check(replication_factor, len(brokers))
    racks = racks_of(dict(brokers))
    ring = _alternate(racks)
    rack_count = len(set(racks.values()))

    @cache  # the same choices come again and again
    def choose(first: int, distance: int) -> list[int]:
        return _choose(_candidates(ring, first, distance, rack_count), racks, replication_factor)

    start, distance = rng.randrange(len(ring)), rng.randrange(len(ring))
    if first_broker in racks:
        start = ring.index(first_broker)
    assignment = []
    for number in range(first_partition, first_partition + partitions):
        distance += number > 0 and number % len(ring) == 0
        assignment.append([*choose((start + number) % len(ring), distance % max(len(ring) - 1, 1))])
    return assignment


def racks_of(racks: Mapping[int, str | None]) -> dict[int, str]:
    """Return the rack of each broker by id. Unless all have one, each broker is in a rack of its own."""
    known = {node_id: rack for node_id, rack in racks.items() if rack is not None}
    return known if len(known) == len(racks) else {node_id: str(node_id) for node_id in racks}


def _check(replication_factor: int, brokers: int) -> None:
    if replication_factor < 1:
        raise KafkaError(ErrorCode.INVALID_REPLICATION_FACTOR, "the replication factor must be at least 1")
    if replication_factor > brokers:
        raise KafkaError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"a replication factor of {replication_factor} needs as many brokers; there are {brokers}",
        )


def _alternate(racks: Mapping[int, str]) -> list[int]:
    """Return the brokers in an order that takes one from each rack in turn."""
    members: defaultdict[str, list[int]] = defaultdict(list)
    for node_id in sorted(racks):
        members[racks[node_id]].append(node_id)
    turns = zip_longest(*(members[rack] for rack in sorted(members, key=lambda rack: members[rack][0])))
    return [node_id for node_id in chain.from_iterable(turns) if node_id is not None]


def _candidates(ring: Sequence[int], first: int, distance: int, racks: int) -> Iterator[int]:
    """Yield all brokers, from the first replica on, then at a distance from it.

    The distance grows by whole turns over the racks, because shorter steps reach the same brokers again. If that would
    not reach all distances, it grows by single steps.
    """
    yield ring[first]
    others = len(ring) - 1
    step = racks if gcd(racks, others) == 1 else 1
    for k in range(others):
        yield ring[(first + 1 + (distance * step + k) % others) % len(ring)]


def _choose(candidates: Iterator[int], racks: Mapping[int, str], count: int) -> list[int]:
    """Take the first replicas, those on another rack before those on a rack that has one already."""
    seen: Counter[str] = Counter()
    order = []
    for node_id in candidates:
        order.append((seen[racks[node_id]], node_id))
        seen[racks[node_id]] += 1
    return [node_id for _, node_id in islice(sorted(order, key=lambda each: each[0]), count)]
