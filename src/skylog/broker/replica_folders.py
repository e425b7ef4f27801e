"""The folders of replicas: opens logs in them and renames them, in threads.

It knows nothing of topics and roles. `replicas.py` decides which logs there must be.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Executor
from pathlib import Path
from typing import TypeVar
from uuid import UUID

from skylog.errors import ErrorCode, KafkaError, SkylogError
from skylog.model import TopicPartition
from skylog.storage import Log, LogConfig, LogDir
from skylog.storage.log_dir import belongs_to, delete, set_aside, set_log_aside

logger = logging.getLogger(__name__)

T = TypeVar("T")


class ReplicaFolders:
    """The folders in a log directory. Call it on the event loop. Raises KafkaError if the broker is stopping.

    Hold `in_use` from the decision to use or rename a folder until that is done.
    """

    def __init__(self, log_dir: LogDir, executor: Executor) -> None:
        self._log_dir = log_dir
        self._executor = executor
        self.in_use = asyncio.Lock()

    async def open(self, name: TopicPartition, config: LogConfig, topic_id: UUID) -> Log:
        """Open one log. Raises OSError and SkylogError."""
        return await self._run(lambda: self._log_dir.make_log(name, config, topic_id))

    async def open_all(self, names: Iterable[TopicPartition], config: LogConfig, topic_id: UUID) -> list[Log]:
        """Open logs, or none of them: new folders are removed again. Raises OSError and SkylogError."""
        return await self._run(lambda: self._open_all(names, config, topic_id))

    async def open_each(
        self, names: Sequence[TopicPartition], config: LogConfig, topic_id: UUID
    ) -> list[Log | Exception]:
        """Open logs. Return each of them, or the reason why it could not be opened."""
        write_checkpoints = self._log_dir.forget(names)
        return await self._run(lambda: self._open_each(names, config, topic_id, write_checkpoints))

    async def forget(self, names: Sequence[TopicPartition]) -> None:
        """Remove from the checkpoints what former logs of these names have left there. Raises OSError."""
        write_checkpoints = self._log_dir.forget(names)
        if write_checkpoints is not None:
            await self._run(write_checkpoints)

    async def set_aside(self, logs: Sequence[Log]) -> list[Path]:
        """Rename the folders of removed logs, which frees their names. Return the new paths."""
        return await self._run(lambda: self._set_aside_all(logs))

    async def keep_aside(self, logs: Sequence[Log]) -> list[Path]:
        """Rename the folders of logs whose topics are gone. A log continues with its folder if its topic is back."""
        return await self._run(lambda: self._keep_aside(logs))

    async def set_unopened_aside(self, logs: Sequence[tuple[TopicPartition, UUID]]) -> None:
        """Free the names of logs that could not be opened. The next start removes their folders."""
        await self._run(lambda: self._set_unopened_aside(logs))

    # -- in a thread

    def _open_all(self, names: Iterable[TopicPartition], config: LogConfig, topic_id: UUID) -> list[Log]:
        logs: list[Log] = []
        new_folders: list[Path] = []
        for name in names:
            folder = self._log_dir.path / str(name)
            if not folder.exists():  # otherwise it is not ours to remove
                new_folders.append(folder)
            try:
                logs.append(self._log_dir.make_log(name, config, topic_id))
            except BaseException:
                for made in new_folders:
                    if made.exists():
                        delete(set_aside(made))
                raise
        return logs

    def _open_each(
        self,
        names: Iterable[TopicPartition],
        config: LogConfig,
        topic_id: UUID,
        write_checkpoints: Callable[[], None] | None,
    ) -> list[Log | Exception]:
        outcomes: list[Log | Exception] = []
        for name in names:
            try:
                if write_checkpoints is not None:
                    write_checkpoints()
                    write_checkpoints = None
                outcomes.append(self._log_dir.make_log(name, config, topic_id))
            except (OSError, SkylogError) as error:
                outcomes.append(error)
        return outcomes

    def _set_aside_all(self, logs: Iterable[Log]) -> list[Path]:
        """A folder that cannot be renamed stays: the topic id in it keeps other topics from using it."""
        folders = []
        for log in logs:
            try:
                aside = set_log_aside(log) or self._log_dir.kept_folder(log)
            except OSError as error:
                logger.error("%s cannot be removed now, the next start removes it: %s", log.directory, error)
            else:
                folders += [aside] if aside is not None else []
        return folders

    def _keep_aside(self, logs: Sequence[Log]) -> list[Path]:
        folders = self._set_aside_all(logs)
        for folder in folders:
            self._log_dir.keep(folder)
        return folders

    def _set_unopened_aside(self, logs: Iterable[tuple[TopicPartition, UUID]]) -> None:
        for name, topic_id in logs:
            folder = self._log_dir.path / str(name)
            try:
                if folder.is_dir() and belongs_to(folder, topic_id):
                    self._log_dir.keep(set_aside(folder))
            except OSError as error:
                logger.error("%s cannot be removed now, the next start removes it: %s", folder, error)

    async def _run(self, work: Callable[[], T]) -> T:
        try:
            running = asyncio.get_running_loop().run_in_executor(self._executor, work)
        except RuntimeError as error:  # no more work is taken while the broker stops
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "the broker is stopping") from error
        return await running
