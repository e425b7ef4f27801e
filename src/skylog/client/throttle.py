"""The settings that limit the rate of a reassignment (KIP-73), as Kafka's own tool sets them. Pure.

Each broker has a rate, for what it sends as a leader and for what it receives as a follower. The rates apply to the
replicas that a topic lists, and only while these are not in sync.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import Final

from skylog.client.reassignment_plan import PartitionMove

RATE_KEYS: Final = ("leader.replication.throttled.rate", "follower.replication.throttled.rate")
LEADER_REPLICAS: Final = "leader.replication.throttled.replicas"
FOLLOWER_REPLICAS: Final = "follower.replication.throttled.replicas"
TOPIC_KEYS: Final = (LEADER_REPLICAS, FOLLOWER_REPLICAS)


def throttled_replicas(moves: Iterable[PartitionMove]) -> dict[str, dict[str, str]]:
    """Return the settings of each topic that moves: its replicas send, those that are added receive."""
    senders: defaultdict[str, list[str]] = defaultdict(list)
    receivers: defaultdict[str, list[str]] = defaultdict(list)
    for move in moves:
        if move.added:
            topic, number = move.partition
            senders[topic] += [f"{number}:{each}" for each in move.from_replicas]
            receivers[topic] += [f"{number}:{each}" for each in move.added]
    return {
        topic: {LEADER_REPLICAS: ",".join(senders[topic]), FOLLOWER_REPLICAS: ",".join(receivers[topic])}
        for topic in senders
    }
