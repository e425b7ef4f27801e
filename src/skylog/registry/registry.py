"""A registry: the state, the topic that it follows, and the writes. All of it runs on the event loop.

A write is decided from the state, appended in a transaction, and answered when the state has it. Writes run one after
another. Only the elected registry writes, and only after it has opened a writer, which fences all others, and has read
to the end of the topic. If it is not known whether a transaction was committed, the same happens again, and then the
topic tells.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Final, TypeVar

from confluent_kafka import KafkaException

from skylog.client import Connection
from skylog.errors import ErrorCode, SkylogError
from skylog.limited_logger import LimitedLogger
from skylog.registry.changes import Change
from skylog.registry.errors import RegistryError, store_error, timed_out, too_large
from skylog.registry.log.election import Election
from skylog.registry.log.follower import Follower
from skylog.registry.log.topic import ensure_topic
from skylog.registry.log.writer import (
    MAX_RECORD_BYTES,
    NotWrittenError,
    OutcomeUnknownError,
    RecordTooLargeError,
    Writer,
)
from skylog.registry.records import Record
from skylog.registry.settings import RegistrySettings
from skylog.registry.state import RegistryState

logger = logging.getLogger(__name__)

START_S: Final = 60.0
WRITE_S: Final = 20.0
REFRESH_S: Final = 5.0
RETRY_S: Final = 0.25
MISSES: Final = 5
"""Attempts after which a topic that no broker knows is taken for deleted."""

T = TypeVar("T")

Decide = Callable[[], Awaitable[Change]]


class NotWriterError(SkylogError):
    """This registry is not elected: another one writes."""


class Registry:
    """`url` is where the other registries reach this one. Call `start` and `close` on the event loop."""

    def __init__(self, settings: RegistrySettings, url: str) -> None:
        self.settings, self.url = settings, url
        self.state = RegistryState()
        self.cluster_id = ""
        self.problem: str | None = None
        """Why this registry cannot write although it is elected."""
        self.writes = self.failed_writes = self.elections = 0
        self.connection = Connection(settings.bootstrap)
        self._limited = LimitedLogger(logger)
        self._is_elected = False
        self._writer: Writer | None = None
        self._is_settled = True  # whether the state has everything that the writer has appended
        self._writing = asyncio.Lock()
        self._is_current = asyncio.Event()
        self._preparing: asyncio.Task[None] | None = None
        self._follower: Follower
        self._election: Election | None = None

    async def start(self) -> None:
        """Connect. Raises SkylogError if the topic is unfit or no broker answers. Schemas may not be read yet."""
        topic, group = self.settings.topic, self.settings.group
        self.cluster_id = await asyncio.to_thread(ensure_topic, self.connection, topic)
        self._follower = Follower(self.connection.another(), topic, self._apply, self._reset)
        self._follower.start()
        if not self.settings.read_only:  # one that is elected has to make the changes of the others
            self._election = Election(
                self.connection.another(), topic, group, self.url, self._elected, lambda: self._follower.position
            )
            self._election.start()
        self._catching_up = asyncio.create_task(self._catch_up())

    async def close(self) -> None:
        """Stop, and let another registry write."""
        for task in (self._catching_up, self._preparing):
            if task is not None:
                task.cancel()
        if self._election is not None:
            await self._election.close()
        async with self._writing:
            await self._drop_writer()
        await self._follower.close()

    # -- reading

    async def ready(self) -> None:
        """Wait until the state has everything that was in the topic at the start. Raises RegistryError."""
        if self._is_current.is_set():
            return
        try:
            async with asyncio.timeout(START_S):
                await self._is_current.wait()
        except TimeoutError:
            raise store_error(f"topic '{self.settings.topic}' is not read yet; is the cluster available?") from None

    async def refresh(self) -> None:
        """Read what is committed now. If the cluster does not answer, the state stays as it is."""
        if self._is_elected and self._is_settled and self._writer is not None:
            return  # nobody else writes
        try:
            await self._follower.reach_end(REFRESH_S)
        except (KafkaException, TimeoutError) as error:
            logger.debug("cannot refresh the state: %s", error)

    async def reach(self, position: int) -> None:
        """Wait until the state has everything before an offset, that another registry has written."""
        try:
            async with asyncio.timeout(REFRESH_S):
                await self._follower.reach(position)
        except TimeoutError:
            raise timed_out("the change is made, but this registry has not read it yet") from None

    @property
    def position(self) -> int:
        return self._follower.position

    @property
    def is_current(self) -> bool:
        return self._is_current.is_set()

    @property
    def is_writer(self) -> bool:
        """Whether this registry is elected. It may have to read to the end of the topic before it writes."""
        return self._is_elected

    async def find_writer(self) -> str | None:
        """Return the URL of the elected registry; None while there is none. Raises SkylogError."""
        return None if self._election is None else await self._election.find_writer()

    def _apply(self, record: Record) -> None:
        self.state.apply(record)

    def _reset(self) -> None:
        logger.warning("topic '%s' begins again: it was deleted", self.settings.topic)
        self.state = RegistryState()

    async def _catch_up(self) -> None:
        while not self._is_current.is_set():
            try:
                await self._follower.reach_end(START_S)
                self._is_current.set()
            except (KafkaException, TimeoutError) as error:
                logger.warning("cannot read topic '%s' to its end yet: %s", self.settings.topic, error)
                await asyncio.sleep(RETRY_S)
        logger.info("read topic '%s': %s", self.settings.topic, self.state.counts())

    # -- writing

    def _elected(self, is_elected: bool) -> None:
        self._is_elected = is_elected
        self.elections += is_elected
        logger.info("this registry %s", "is elected to write" if is_elected else "no longer writes")
        if is_elected:
            self._preparing = asyncio.create_task(self._prepare())
        else:
            self._is_settled = False  # others write now: if it is elected again, it has to read that first

    async def _prepare(self) -> None:
        """Open the writer before the first change needs it, and fence the one before."""
        async with self._writing:
            with suppress(NotWriterError, RegistryError):  # the first change tries again, and says so
                await self._open_writer()

    async def write(self, decide: Decide) -> Change:
        """Decide and write a change. Raises NotWriterError, and RegistryError for one that is refused or fails."""
        try:
            async with asyncio.timeout(WRITE_S), self._writing:
                while True:
                    writer = await self._open_writer()
                    change = await decide()
                    if not change.records or await self._append(writer, change):
                        return change
        except TimeoutError:
            self.failed_writes += 1
            reason = self.problem or "the cluster does not accept writes"
            raise timed_out(f"{reason}; the change may be made later") from None

    async def _append(self, writer: Writer, change: Change) -> bool:
        """Append the records, and wait until the state has them. False if they have to be decided again."""
        before, self._is_settled = self._follower.position, False  # also if this is cancelled in between
        election = self.elections
        try:
            end = await _finish(asyncio.to_thread(writer.append, change.records))
            await self._follower.reach(end)
        except RecordTooLargeError:
            await self._drop_writer()
            raise too_large(MAX_RECORD_BYTES) from None
        except NotWrittenError as error:
            logger.warning("a change was not written: %s", error)
            await self._drop_writer()
            return False
        except OutcomeUnknownError as error:
            logger.warning("it is not known whether a change was written: %s", error)
            await self._drop_writer()
            await self._open_writer()
            if not self._follower.has(change.records, before):
                return False
        self._is_settled = self._is_elected and self.elections == election  # others may have written in between
        self.writes += 1
        return True

    async def _open_writer(self) -> Writer:
        """Return the writer, after it has fenced all others and everything they wrote is read.

        Raises RegistryError if the topic is gone for longer than a broker needs to learn of a topic.
        """
        misses = 0
        while self._is_elected:
            if self._writer is not None and self._is_settled:
                return self._writer
            await self._drop_writer()
            writer = Writer(self.connection.another(), self.settings.topic, self.settings.group)
            try:
                await _finish(asyncio.to_thread(writer.open))
                await self._follower.reach_end(REFRESH_S)
                self._writer, self._is_settled, self.problem = writer, True, None
                logger.info("this registry writes from offset %d on", self._follower.position)
            except (KafkaException, TimeoutError) as error:
                is_missing = _is_missing(error)
                misses = misses + 1 if is_missing else 0
                self.problem = self._deleted() if is_missing else f"cannot begin to write: {error}"
                self._limited.warning("%s", self.problem)
                await asyncio.to_thread(writer.close)
                if misses >= MISSES:
                    raise store_error(self.problem) from error
                await asyncio.sleep(RETRY_S)
        await self._drop_writer()
        raise NotWriterError("another registry is elected to write")

    def _deleted(self) -> str:
        return (
            f"topic '{self.settings.topic}' was deleted. This registry still has the schemas in memory: save them with "
            "GET /schemas before it stops"
        )

    async def _drop_writer(self) -> None:
        writer, self._writer = self._writer, None
        if writer is not None:
            await asyncio.to_thread(writer.close)


def _is_missing(error: Exception) -> bool:
    return isinstance(error, KafkaException) and error.args[0].code() == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def _finish(work: Awaitable[T]) -> T:
    """Wait for a thread even if the caller is cancelled: a producer allows one call at a time."""
    task = asyncio.ensure_future(work)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.gather(task, return_exceptions=True)
        raise
