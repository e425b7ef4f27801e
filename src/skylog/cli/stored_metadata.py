"""Access to the metadata store without a broker: a data directory, or ZooKeeper, also before the first start."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from skylog.cli.client_config import CONFIG_VARIABLE
from skylog.cli.serve.store_session import session_opener
from skylog.cli.settings import read_settings
from skylog.errors import SkylogError

if TYPE_CHECKING:
    from skylog.broker import ServerConfig
    from skylog.cluster import MetadataStore

T = TypeVar("T")


def with_store(data_dir: Path | None, zookeeper: str | None, use: Callable[[MetadataStore], Awaitable[T]]) -> T:
    """Call `use` with a session. Raises SkylogError if a broker uses the data directory."""
    if data_dir is not None and zookeeper is not None:
        raise SkylogError("give --data-dir or --zookeeper: a cluster keeps its users in ZooKeeper")

    async def run() -> T:
        if zookeeper is not None:
            opener = session_opener(zookeeper, None, _zookeeper_settings())
            assert opener is not None
            session = await opener()
            try:
                return await use(session)
            finally:
                await session.close()
        assert data_dir is not None
        return await _in_directory(data_dir, use)

    return asyncio.run(run())


def _zookeeper_settings() -> ServerConfig:
    """Return the settings `zookeeper.*` in the file of `--config`, which may be that of a broker."""
    from skylog.broker import ServerConfig

    path = os.environ.get(CONFIG_VARIABLE)
    given = read_settings(Path(path) if path else None, (), "--config")
    return ServerConfig.parse({key: value for key, value in given.items() if key.startswith("zookeeper.")})


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
