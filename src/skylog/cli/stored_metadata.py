"""Access to the metadata store without a broker: a data directory, or ZooKeeper, also before the first start."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from skylog.cli.serve.store_session import session_opener
from skylog.errors import SkylogError

if TYPE_CHECKING:
    from skylog.cluster import MetadataStore

T = TypeVar("T")


def with_store(data_dir: Path | None, zookeeper: str | None, use: Callable[[MetadataStore], Awaitable[T]]) -> T:
    """Call `use` with a session. Raises SkylogError if a broker uses the data directory."""
    if data_dir is not None and zookeeper is not None:
        raise SkylogError("give --data-dir or --zookeeper: a cluster keeps its users in ZooKeeper")

    async def run() -> T:
        if zookeeper is not None:
            from skylog.broker.config import BrokerConfig

            opener = session_opener(zookeeper, None, BrokerConfig())
            assert opener is not None
            session = await opener()
            try:
                return await use(session)
            finally:
                await session.close()
        assert data_dir is not None
        return await _in_directory(data_dir, use)

    return asyncio.run(run())


async def _in_directory(data_dir: Path, use: Callable[[MetadataStore], Awaitable[T]]) -> T:
    from skylog.clock import SystemClock
    from skylog.cluster import EmbeddedStore
    from skylog.storage import LogDir

    log_dir = LogDir(data_dir, SystemClock())  # locks it
    try:
        session = EmbeddedStore(log_dir.path).open_session()
        try:
            return await use(session)
        finally:
            await session.close()
    finally:
        log_dir.close()
