"""Runs replays, each in a thread. Pages show their progress and can stop them. They end with the console."""

from __future__ import annotations

import logging
import secrets
import threading
import time
from collections.abc import Callable
from typing import Any, Final

from skylog.client import Connection, Replay, ReplayPlan
from skylog.errors import SkylogError

logger = logging.getLogger(__name__)

MAX_RUNNING: Final = 4
MAX_KEPT: Final = 50


class RunningReplay:
    """One replay. `state` is running, stopping, done, stopped or failed."""

    def __init__(self, plan: ReplayPlan, connect: Callable[[], Connection], rate_limit: int | None) -> None:
        self.id = secrets.token_hex(6)
        self.plan = plan
        self.started_at_ms = int(time.time() * 1000)
        self._outcome: str | None = None
        self._is_stopping = False
        self.error: str | None = None
        self._replay: Replay | None = Replay(plan, connect(), connect(), rate_limit=rate_limit)
        self._progress = self._replay.progress

    def start(self) -> None:
        # A daemon thread, so that an unreachable broker does not keep the console from stopping.
        threading.Thread(target=self._run, name=f"skylog-console-replay-{self.id}", daemon=True).start()

    def stop(self) -> None:
        replay = self._replay
        if replay is not None:
            self._is_stopping = True
            replay.stop()

    @property
    def state(self) -> str:
        return self._outcome or ("stopping" if self._is_stopping else "running")

    @property
    def is_over(self) -> bool:
        return self._outcome is not None

    @property
    def document(self) -> dict[str, Any]:
        plan, progress = self.plan, self._progress
        starts = sum(offsets.start_offset for offsets in plan.ranges.values())
        return {
            "id": self.id,
            "source": plan.source,
            "into": plan.target,
            "keeps_partitions": plan.keeps_partitions,
            "state": self.state,
            "error": self.error,
            "started_at_ms": self.started_at_ms,
            "messages": progress.messages,
            "covered_offsets": sum(progress.next_offsets.values()) - starts,
            "total_offsets": plan.offset_count,
            "elapsed_s": round(progress.elapsed_s, 3),
            "messages_per_s": round(progress.messages / progress.elapsed_s) if progress.elapsed_s else 0,
            "partitions": [
                {
                    "partition": key.partition,
                    "start_offset": offsets.start_offset,
                    "end_offset": offsets.end_offset,
                    "next_offset": progress.next_offsets[key.partition],
                }
                for key, offsets in plan.ranges.items()
            ],
        }

    def _run(self) -> None:
        replay = self._replay
        assert replay is not None
        try:
            for progress in replay.run():
                self._progress = progress
        except SkylogError as error:
            self.error = str(error)
            self._outcome = "failed"
        except Exception as error:
            logger.exception("a replay of '%s' into '%s' failed", self.plan.source, self.plan.target)
            self.error = f"{type(error).__name__}: {error}"
            self._outcome = "failed"
        else:
            self._outcome = "done" if replay.is_complete else "stopped"
        self._replay = None  # releases the producer's threads and connections


class Replays:
    """The replays of one console: at most MAX_RUNNING at a time, and the last that have ended."""

    def __init__(self, connect: Callable[[], Connection]) -> None:
        self._connect = connect
        self._all: dict[str, RunningReplay] = {}
        self._lock = threading.Lock()

    def start(self, plan: ReplayPlan, rate_limit: int | None) -> RunningReplay:
        with self._lock:
            if sum(not each.is_over for each in self._all.values()) >= MAX_RUNNING:
                raise SkylogError(f"{MAX_RUNNING} replays are running already; wait for one or stop one")
            running = RunningReplay(plan, self._connect, rate_limit)
            self._all[running.id] = running
            for each in [each for each in self._all.values() if each.is_over][: max(len(self._all) - MAX_KEPT, 0)]:
                del self._all[each.id]
        running.start()
        return running

    def get(self, topic: str, replay_id: str) -> RunningReplay | None:
        found = self._all.get(replay_id)
        return found if found is not None and found.plan.source == topic else None

    def of(self, topic: str) -> list[RunningReplay]:
        """Return the replays of a topic, newest first."""
        return [each for each in reversed(list(self._all.values())) if each.plan.source == topic]

    def stop(self) -> None:
        for each in list(self._all.values()):
            each.stop()
