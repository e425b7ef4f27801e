"""Keeps the logs of deleted topics for a while, until it is certain that their topics were deleted.

The metadata store reports that a topic is gone when it was deleted, but also when somebody removes all entries of the
cluster. The replicas of all brokers would be deleted within milliseconds then, without a way back. So the folders are
renamed and stay, until some time later the store proves that it still has the cluster. If it has not, they stay until
it is restored. Logs of topics that are back by then continue with their folders: see `LogDir.make_log`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final

from skylog.errors import SkylogError
from skylog.limited_logger import LimitedLogger
from skylog.storage import LogDir

limited_logger = LimitedLogger(logging.getLogger(__name__))

KEPT_S: Final = 30.0


class DeletedLogs:
    """The folders that wait for their removal. `check` raises SkylogError unless the store has the cluster.

    After a failed check the time begins again: a store that has just come back has not reported its topics yet.
    """

    def __init__(self, log_dir: LogDir, check: Callable[[], Awaitable[None]], discard: Callable[..., None]) -> None:
        self._log_dir = log_dir
        self._check = check
        self._discard = discard
        self._tasks: set[asyncio.Task[None]] = set()
        self._has_stopped = False

    def keep(self, *folders: Path) -> None:
        """Delete the folders of logs later. They have been renamed and registered in the log directory."""
        if self._has_stopped:
            return
        task = asyncio.create_task(self._delete(folders))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _delete(self, folders: tuple[Path, ...]) -> None:
        while True:
            await asyncio.sleep(KEPT_S)
            try:
                await self._check()
            except SkylogError as error:
                limited_logger.error("%d logs of deleted topics are not removed: %s", len(folders), error)
            else:
                break
        self._log_dir.give_up(folders)
        self._discard(*folders)

    async def stop(self) -> None:
        """Leave the folders that still wait to the next start."""
        self._has_stopped = True
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
