"""The leaders of partitions that have moved, for the responses that say so (KIP-951)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from skylog.cluster import BrokerImage
from skylog.cluster.image import NO_LEADER
from skylog.errors import ErrorCode

if TYPE_CHECKING:
    from skylog.broker.broker import Broker
    from skylog.net import Connection

_MOVED: Final = (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH)


class NewLeaders:
    """Finds the leaders for one response, and remembers which it has found."""

    __slots__ = ("_broker", "_connection", "_found")

    def __init__(self, broker: Broker, connection: Connection) -> None:
        self._broker = broker
        self._connection = connection
        self._found: set[int] = set()

    def find(self, topic: str, index: int, code: int) -> tuple[int, int] | None:
        """Return leader and epoch of a partition if `code` says that the client has another one, and it is known.

        A broker that does not lead yet what the image says it leads names nobody.
        """
        image = self._broker.metadata.image
        known = image.topics.get(topic)
        if code not in _MOVED or known is None or not 0 <= index < len(known.partitions):
            return None
        partition = known.partitions[index]
        is_own = partition.leader == self._broker.identity.node_id
        if partition.leader == NO_LEADER or (is_own and code == ErrorCode.NOT_LEADER_OR_FOLLOWER):
            return None
        self._found.add(partition.leader)
        return partition.leader, partition.leader_epoch

    def addresses(self) -> list[BrokerImage]:
        """Return the leaders that were found, with addresses that the client can reach."""
        if not self._found:
            return []
        return [each for each in self._broker.addresses(self._connection) if each.node_id in self._found]
