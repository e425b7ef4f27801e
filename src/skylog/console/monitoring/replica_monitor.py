"""Describes the brokers and replicas of the cluster every few seconds, for the pages.

Apart from the snapshots of `cluster_monitor`, because these wait for brokers that do not answer.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Mapping, Sequence

from skylog.client import ClusterDescription
from skylog.client.brokers import LogDirectory
from skylog.console.cluster.client_pool import ClientPool, Clients
from skylog.console.monitoring.pacing import Pacing
from skylog.errors import SkylogError

logger = logging.getLogger(__name__)


class ReplicaMonitor:
    """`latest` is the last description that succeeded. `problem` is the error of the last attempt, or None.

    `directories` has the log directories of the brokers that answered, by id.
    """

    def __init__(self, cluster: ClientPool) -> None:
        self.latest: ClusterDescription | None = None
        self.directories: Mapping[int, Sequence[LogDirectory]] = {}
        self.taken_at_ms = 0
        self.problem: str | None = None
        self._cluster = cluster
        self._first = asyncio.Event()
        self._pacing = Pacing()

    async def run(self) -> None:
        """Describe the cluster until cancelled."""
        await self._pacing.repeat(self.refresh)

    async def first_attempt(self) -> None:
        """Wait until the first description was made or has failed."""
        await self._first.wait()

    async def refresh(self) -> bool:
        """Describe the cluster now. Errors go to `problem`; returns whether there was none."""
        try:
            self.latest, self.directories = await self._cluster.run_monitoring(_describe)
            self.taken_at_ms = int(time.time() * 1000)
            self.problem = None
        except SkylogError as error:
            self.problem = str(error)
        except Exception:
            logger.exception("a description of the cluster failed; retrying")
            self.problem = "a description of the cluster failed; see the console's log"
        self._first.set()
        return self.problem is None

    @property
    def doubt(self) -> str | None:
        """Why the latest description cannot be trusted: the error of the last attempt, or that the next is overdue."""
        return self.problem or self._pacing.doubt

    def is_one_of_several(self, node_id: int | None) -> bool:
        """Whether a broker is known and not the only one."""
        return node_id is not None and self.latest is not None and len(self.latest.loads()) > 1


def _describe(clients: Clients) -> tuple[ClusterDescription, dict[int, list[LogDirectory]]]:
    found = clients.cluster.describe()
    return found, clients.brokers.all_log_directories(found.brokers)
