"""How a broker takes part in its cluster, which for a standalone broker is the broker alone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from skylog.broker.config import BrokerConfig
from skylog.cluster import BrokerImage, ClusterMetadata

if TYPE_CHECKING:
    from skylog.broker.replication.follower_sessions import FollowerSessions
    from skylog.broker.replication.repairs import Repairs
    from skylog.broker.scrubber import Scrubber


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberCounts:
    """What a member of a cluster has counted since it was started.

    `bytes_in` and `bytes_out` are bytes of batches copied from leaders and to followers. Elections are counted by the
    controller that holds them.
    """

    bytes_in: int = 0
    bytes_out: int = 0
    elections: int = 0
    unclean_elections: int = 0
    session_expirations: int = 0
    failed_in_sync_changes: int = 0


class Membership(Protocol):
    """Called by the broker as it starts and stops, in the order of the methods."""

    @property
    def is_replicated(self) -> bool:
        """Whether partitions may have replicas on other brokers."""

    @property
    def followers(self) -> FollowerSessions | None:
        """Serves the fetches of followers. None for a standalone broker, which has none."""

    @property
    def counts(self) -> MemberCounts:
        """What was counted so far; all zero for a standalone broker."""

    @property
    def scrubber(self) -> Scrubber | None:
        """Looks for damage. None for a standalone broker, which could not repair it."""

    @property
    def repairs(self) -> Repairs | None:
        """Repairs damage from other replicas."""

    async def enter(self, was_clean: bool) -> None:
        """Load the image. `was_clean` tells whether the last stop was."""

    async def register(self, broker: BrokerImage) -> None:
        """Publish the address of the broker. From now on it leads what the image says."""

    async def move(self, broker: BrokerImage) -> None:
        """Publish another address of the broker."""

    def reconfigure(self, config: BrokerConfig) -> None:
        """Use another configuration from now on."""

    async def hand_over(self) -> None:
        """Let others lead before this broker stops. Clients are still served."""

    async def stop(self) -> None:
        """Stop all background work."""


class StandaloneMembership:
    """The membership of a broker that is alone. It leads every partition, from the start."""

    is_replicated = False
    followers = None
    counts = MemberCounts()
    scrubber = None
    repairs = None

    def __init__(self, metadata: ClusterMetadata) -> None:
        self._metadata = metadata

    async def enter(self, was_clean: bool) -> None:
        await self._metadata.load()
        if not was_clean:
            await self._metadata.begin_epochs()

    async def register(self, broker: BrokerImage) -> None:
        await self._metadata.register(broker)

    async def move(self, broker: BrokerImage) -> None:
        """Do nothing: a standalone broker knows its own address."""

    def reconfigure(self, config: BrokerConfig) -> None:
        pass

    async def hand_over(self) -> None:
        pass

    async def stop(self) -> None:
        pass
