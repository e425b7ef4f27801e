"""Keeps the logs of deleted topics for a while, until it is certain that their topics were deleted.

The metadata store reports that a topic is gone when it was deleted, but also when somebody removes all entries of the
cluster. The replicas of all brokers would be deleted within milliseconds then, without a way back. So the folders are
renamed and stay, until some time later the store proves that it has the cluster, and that a broker has deleted the
topics: then their ids are gone, too. Otherwise they stay until the store is restored. Logs of topics that are back by
then continue with their folders: see `LogDir.make_log`. So do those of topics that are gone at a start.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection
from pathlib import Path
from typing import Final
from uuid import UUID

from skylog.errors import SkylogError
from skylog.limited_logger import LimitedLogger
from skylog.storage import LogDir

limited_logger = LimitedLogger(logging.getLogger(__name__))

KEPT_S: Final = 30.0


class DeletedLogs:
    """The folders that wait for their removal. `check` raises SkylogError unless topics with these ids were deleted.

    After a failed check the time begins again: a store that has just come back has not reported its topics yet.
    """

    def __init__(
        self, log_dir: LogDir, check: Callable[[Collection[UUID]], Awaitable[None]], discard: Callable[..., None]
    ) -> None:
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
                await self._check(self._log_dir.kept_topics(folders))
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
