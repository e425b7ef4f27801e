"""Brokers that share a metadata store, on one event loop in a thread. They replicate nothing."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Self, TypeVar

import uvloop

from skylog.broker import Broker, ServerConfig
from skylog.clock import SystemClock
from skylog.cluster import EmbeddedStore
from skylog.storage import LogDir

T = TypeVar("T")


class Neighbours:
    """Brokers 1 to `count`, with their data in `path`. All of them have the same settings."""

    def __init__(self, path: Path, count: int, settings: Mapping[str, str]) -> None:
        (path / "store").mkdir(parents=True)
        self._loop = uvloop.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="neighbours")
        self._store = EmbeddedStore(path / "store")
        self._path = path
        self._settings = settings
        self._count = count
        self.brokers: dict[int, Broker] = {}
        self.ports: dict[int, int] = {}

    def __enter__(self) -> Self:
        self._thread.start()
        for node_id in range(1, self._count + 1):
            self.start(node_id)
        return self

    def __exit__(self, *_: object) -> None:
        for node_id in list(self.brokers):
            self.stop(node_id)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def start(self, node_id: int) -> None:
        async def start() -> int:
            clock = SystemClock()
            config = ServerConfig.parse({**self._settings, "node.id": str(node_id)})
            log_dir = LogDir(self._path / f"broker-{node_id}", clock)
            broker = self.brokers[node_id] = Broker(log_dir, self._store.open_session(), config, clock)
            return await broker.start("127.0.0.1", 0)

        self.ports[node_id] = self.run(start())

    def stop(self, node_id: int) -> None:
        self.run(self.brokers.pop(node_id).stop())

    def run(self, coroutine: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(30)

    def look(self, node_id: int, question: Callable[[Broker], T]) -> T:
        """Call `question` with a broker on its own thread. Return the result."""

        async def ask() -> T:
            return question(self.brokers[node_id])

        found: T = self.run(ask())
        return found
