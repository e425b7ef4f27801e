"""A machine with a broker: its disk, its clock and the process that runs, with all the ways in which that may end."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Final, Protocol

from skylog.broker import Broker, ServerConfig
from skylog.broker.clustered import clustered_broker
from skylog.cluster import MetadataStore
from skylog.cluster.shared_store import open_shared_store
from skylog.simulation.clock import VirtualClock
from skylog.simulation.disk import Disk
from skylog.simulation.process import Process
from skylog.storage.files import LogFile

if TYPE_CHECKING:
    from skylog.simulation.world import World

PORT: Final = 9092
RESTART_S: Final = 1.0
RACKS: Final = 3
"""The racks of brokers, where consumers read from the replica in theirs."""


class Companion(Protocol):
    """Work beside a broker, in its process. It starts after the broker and stops before it."""

    def start(self) -> None: ...
    async def stop(self) -> None: ...


class Machine:
    """The host of one broker. `broker` is there while it serves. A process that fails to start is started again."""

    def __init__(self, world: World, node_id: int, disk: Disk, settings: Mapping[str, str]) -> None:
        self.node_id = node_id
        self.host = f"broker-{node_id}"
        self.clock = VirtualClock(world.loop)
        self.disk = disk
        self.broker: Broker | None = None
        self.process: Process | None = None
        self._companion: Companion | None = None
        self.has_power = True
        self.is_wanted = True
        """Whether the broker is a member of the cluster, or will be as soon as it starts."""
        self._stopping: Process | None = None
        self._starts_again = False
        self._world = world
        self._settings = {**settings, "node.id": str(node_id)}
        if "replica.selector.class" in settings:
            self._settings["broker.rack"] = f"rack-{node_id % RACKS}"

    @property
    def is_running(self) -> bool:
        return self.process is not None

    # -- beginnings

    def start(self) -> None:
        """Start the broker, on a machine with power. One that is stopping starts when it has stopped."""
        if self.process is not None or not self.is_wanted:
            self._starts_again = self.process is not None and self.process is self._stopping
            return
        self._starts_again = False
        if not self.has_power:
            self.has_power = True
            self._world.network.power_on(self.host)
        self._note("starts")
        self.process = Process(self.host, self.host)
        self.process.call(self._world.loop.create_task, self._run(self.process))

    async def _run(self, process: Process) -> None:
        try:
            config = ServerConfig.parse(self._settings)
            broker = await clustered_broker(self.disk.path, self._open_session, config, self.clock, self._open_file)
            await broker.start(self.host, PORT)
        except Exception as error:
            self._note(f"cannot start: {type(error).__name__}: {error}")
            self._end(process)
            self._world.later(RESTART_S, self.start)
        else:
            self.broker = broker
            self._note("serves")
            if self._world.new_companion is not None:
                self._companion = self._world.new_companion(broker)
                self._companion.start()

    async def _open_session(self) -> MetadataStore:
        return await open_shared_store(self._world.store_address, self.host, self._world.session_timeout_ms)

    def _open_file(self, path: Path, create: bool = False) -> LogFile:
        return self.disk.faults.open_file(path, create)

    def join(self) -> None:
        """Become a member of the cluster."""
        self.is_wanted = True
        self.start()

    # -- ends

    def leave(self) -> None:
        """Stop, and do not come back by itself."""
        self.is_wanted = False
        if self.broker is not None and self.process is not None and not self.process.is_paused:
            self.stop()
        else:
            self.kill()

    def kill(self) -> None:
        """End the process at once. What it has written stays in the page cache."""
        if self.process is not None:
            self._note("is killed")
            self._end(self.process)

    def _end(self, process: Process) -> None:
        process.end()
        self._world.network.end_process(process)
        if self.process is process:
            self.process = self.broker = None
            self.disk.release_lock()

    def stop(self) -> None:
        """Stop the broker in good order, however long that takes."""
        if self.process is not None and self.broker is not None and not self.process.is_paused:
            self._note("stops")
            self._stopping = self.process
            stopping = self._stop(self.process, self.broker, self._companion)
            self.process.call(self._world.loop.create_task, stopping)
            self.broker = None

    async def _stop(self, process: Process, broker: Broker, companion: Companion | None) -> None:
        try:
            async with asyncio.timeout(30):
                if companion is not None:
                    await companion.stop()
                await broker.stop()
        except TimeoutError:
            self._world.problems.append(f"broker {self.node_id} did not stop within 30 s")
        self._note("has stopped")
        self._end(process)
        if self._starts_again:
            self._world.later(0, self.start)

    def cut_power(self, rng: Random) -> None:
        """End the process without notice, and lose what is not on disk."""
        if self.process is not None:
            process, self.process, self.broker = self.process, None, None
            process.end()
        if self.has_power:
            self.has_power = False
            self._world.network.cut_power(self.host)
            gone = self.disk.cut_power(rng)
            self._note(f"loses power and {gone} bytes")

    def pause(self) -> None:
        if self.process is not None:
            self._note("is paused")
            self.process.pause()

    def resume(self) -> None:
        if self.process is not None and self.process.is_paused:
            self._note("goes on")
            self._world.loop.resume(self.process)

    def _note(self, what: str) -> None:
        self._world.trace.add(self.host, what)
