"""Takes a snapshot of the cluster every few seconds, for the pages, and records its figures for the plots.

Pages show the latest snapshot, so open pages add no load to the cluster. See `pacing` for the intervals.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import replace

from skylog.console.cluster.client_pool import ClientPool
from skylog.console.cluster.parent_broker import ParentBroker
from skylog.console.monitoring.cluster_snapshot import ClusterSnapshot, take_snapshot
from skylog.console.monitoring.figures import LAG, figures
from skylog.console.monitoring.history import History
from skylog.console.monitoring.metric_reader import MetricReader
from skylog.console.monitoring.pace import GroupProgress, judge
from skylog.console.monitoring.pacing import Pacing
from skylog.errors import SkylogError

logger = logging.getLogger(__name__)


class ClusterMonitor:
    """`latest` is the last snapshot that succeeded. `problem` is the error of the last attempt, or None.

    `parent_id` is the node id of the parent broker, None if it is not known.
    """

    def __init__(self, cluster: ClientPool, broker: ParentBroker | None) -> None:
        self.history = History()
        self.latest = ClusterSnapshot(0)
        self.problem: str | None = None
        self.parent_id: int | None = None
        self._cluster = cluster
        self._broker = broker
        self._first = asyncio.Event()
        self._pacing = Pacing()
        self._progress: dict[str, GroupProgress] | None = None

    async def run(self) -> None:
        """Take snapshots until cancelled."""
        await self._pacing.repeat(self.refresh)

    async def first_attempt(self) -> None:
        """Wait until the first snapshot was taken or has failed."""
        await self._first.wait()

    async def refresh(self) -> bool:
        """Take a snapshot now. Errors go to `problem` and the log; returns whether there was none."""
        problem: str | None = None
        try:
            snapshot = await self._cluster.run_monitoring(take_snapshot)
            if self._broker is not None:
                try:
                    snapshot = replace(snapshot, metrics=MetricReader(await self._broker.metrics(brief=True)))
                    if self.parent_id is None:
                        self.parent_id = (await self._broker.health())["node_id"]
                except SkylogError as error:
                    problem = str(error)  # the snapshot is still useful without metrics
            before, self.latest = self.latest, snapshot
            self.history.record(snapshot.taken_at_ms, figures(before, snapshot))
            self._progress = None
        except SkylogError as error:
            problem = str(error)
        except Exception:
            logger.exception("a snapshot of the cluster failed; retrying")
            problem = "a snapshot of the cluster failed; see the console's log"
        if problem and not self.problem:
            logger.warning("no snapshot of the cluster: %s", problem)
        self.problem = problem
        self._first.set()
        return problem is None

    @property
    def doubt(self) -> str | None:
        """Why the latest snapshot cannot be trusted: the error of the last attempt, or that the next is overdue."""
        return self.problem or self._pacing.doubt

    @property
    def progress(self) -> dict[str, GroupProgress]:
        """How the groups of the latest snapshot get on, without those that do not fit into the history."""
        if self._progress is None:
            history = self.history
            self._progress = {
                name: judge(group, history)
                for name, group in self.latest.groups.items()
                if history.last((LAG, name)) is not None
            }
        return self._progress

    @property
    def is_up(self) -> bool:
        return self.doubt is None and self.latest.taken_at_ms > 0
