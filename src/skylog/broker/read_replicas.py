"""Which replica a consumer reads from (KIP-392): a follower in its rack, if the leader is in another one.

A leader with `replica.selector.class` sends consumers there. Otherwise they read from the leader.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from skylog.broker.partition import Partition

if TYPE_CHECKING:
    from skylog.broker.broker import Broker

LEADER: Final = -1


class RackSelector:
    """Chooses the replica for consumers of one rack."""

    __slots__ = ("_nodes",)

    def __init__(self, nodes: frozenset[int]) -> None:
        self._nodes = nodes

    @classmethod
    def for_rack(cls, broker: Broker, rack: str) -> RackSelector | None:
        """Return the selector for a consumer's rack. None if it reads from the leader, in any case."""
        config = broker.config.broker
        if not config.replica_selector_class or rack == config.broker_rack:
            return None
        brokers = broker.metadata.image.brokers.values()
        nodes = frozenset(each.node_id for each in brokers if each.rack == rack and not each.is_stopping)
        return cls(nodes) if nodes else None

    def select(self, partition: Partition, offset: int) -> int:
        """Return the follower in the rack that is in sync and has an offset; LEADER if there is none.

        Of several, the one with the longest log is selected.
        """
        leading = partition.leading
        if leading is None:
            return LEADER
        found = [
            (progress.end_offset, node)
            for node, progress in leading.followers.items()
            if node in self._nodes
            and node in leading.in_sync
            and progress.log_start_offset <= offset <= progress.end_offset
        ]
        return max(found)[1] if found else LEADER
