"""Notices within a second that another broker's process has ended, long before its session expires.

A connection to each watched broker is kept open. When it breaks, the operating system of the other machine says what
has happened: if it refuses several new connections, nothing listens there any more, so the process has ended. A broker
that does not answer at all, or only slowly, is left to its session with the metadata store: silence proves nothing.

A wrong conclusion costs an election, and the broker joins again. It is drawn once: something between the machines may
refuse the connections for ever. So after a report nothing is concluded from refusals until a connection has succeeded.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from typing import Final

from skylog.cluster import BrokerImage
from skylog.errors import SkylogError

logger = logging.getLogger(__name__)

REFUSALS: Final = 3
REFUSED_RETRY_S: Final = 0.1
RETRY_S: Final = 1.0
CONNECT_S: Final = 5.0

Ended = Callable[[BrokerImage], Awaitable[None]]
"""Called when the process of a broker has ended. Raises SkylogError if nothing can be done about it now."""


class ProcessWatch:
    """Watches the processes of some brokers. `failures` counts unexpected errors."""

    def __init__(self, ended: Ended) -> None:
        self._ended = ended
        self._tasks: dict[tuple[int, int, str, int], asyncio.Task[None]] = {}
        self._reported: set[int] = set()  # and not connected to since
        self.failures = 0

    def watch(self, brokers: Iterable[BrokerImage]) -> None:
        """Watch these brokers from now on, and no others."""
        wanted = {(each.node_id, each.incarnation, each.host, each.port): each for each in brokers}
        for key in [each for each in self._tasks if each not in wanted]:  # in order, not as a set: a seed decides runs
            self._tasks.pop(key).cancel()
        for key, broker in wanted.items():
            if key not in self._tasks:
                self._tasks[key] = asyncio.create_task(self._watch(broker))

    async def stop(self) -> None:
        tasks = list(self._tasks.values())
        self.watch(())
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _watch(self, broker: BrokerImage) -> None:
        refusals = 0
        while True:
            try:
                async with asyncio.timeout(CONNECT_S):
                    reader, writer = await asyncio.open_connection(broker.host, broker.port)
            except ConnectionRefusedError:
                refusals += 1
                if refusals >= REFUSALS:
                    await self._report(broker)
                    refusals = 0
                await asyncio.sleep(REFUSED_RETRY_S if refusals else RETRY_S)
                continue
            except (OSError, TimeoutError):
                await asyncio.sleep(RETRY_S)
                continue
            refusals = 0
            self._reported.discard(broker.node_id)
            await _until_closed(reader, writer)
            await asyncio.sleep(REFUSED_RETRY_S)

    async def _report(self, broker: BrokerImage) -> None:
        if broker.node_id in self._reported:
            return
        logger.warning("broker %d refuses connections: its process has ended", broker.node_id)
        self._reported.add(broker.node_id)  # the report ends this task, when it changes what is watched
        try:
            await self._ended(broker)
        except SkylogError as error:
            self._reported.discard(broker.node_id)
            logger.info("broker %d is still registered: %s", broker.node_id, error)
        except Exception:
            self._reported.discard(broker.node_id)
            self.failures += 1
            logger.exception("the end of broker %d could not be reported", broker.node_id)


async def _until_closed(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Wait until the other side closes the connection. It never sends anything: it was not asked."""
    try:
        with suppress(OSError):
            await reader.read(1)
    finally:
        writer.close()
