"""A simulated world: machines with brokers, the metadata store, the network between them, and the clients' hosts."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Coroutine, Mapping
from contextvars import Context
from pathlib import Path
from random import Random
from typing import Any, Final

from skylog.broker import Broker
from skylog.cluster import TopicImage
from skylog.cluster.metadata import TOPICS
from skylog.simulation.disk import Disk
from skylog.simulation.loop import VirtualLoop
from skylog.simulation.machine import PORT, Companion, Machine
from skylog.simulation.network import Network
from skylog.simulation.process import Process, current_process
from skylog.simulation.trace import STORE_PORT, Trace
from skylog.testing.store_server import StoreSessions

STORE: Final = "store"
_ADDRESS = re.compile(r"0x[0-9a-f]{6,}")


class World:
    """Everything of one run. `seed` determines all of it, together with the settings."""

    def __init__(self, seed: str, base: Path, settings: Mapping[str, str], size: int, session_timeout_ms: int) -> None:
        self.seed = seed
        self.base = base
        self.loop = VirtualLoop(self.rng("threads"))
        self.trace = Trace(self.loop.time)
        self.network = Network(self.loop, self.rng("network"), self.trace)
        self.loop.network = self.network
        self.loop.set_exception_handler(self._unhandled)
        self.session_timeout_ms = session_timeout_ms
        self.store_address = f"{STORE}:{STORE_PORT}"
        self.problems: list[str] = []
        """What must never happen in a broker, whatever fails around it."""
        self.has_damage = False
        """Whether a bit of a log was flipped: what is stored there may be anything."""
        self.disks = {f"broker-{node_id}": Disk(base / f"broker-{node_id}") for node_id in range(1, size + 1)}
        self.machines = {
            node_id: Machine(self, node_id, self.disks[f"broker-{node_id}"], settings) for node_id in range(1, size + 1)
        }
        self.new_companion: Callable[[Broker], Companion] | None = None
        """What runs beside each broker, if anything does."""
        self.store = Process(STORE, STORE)
        self.sessions = StoreSessions()
        self._kernel = Context()
        self.has_ended = False

    def rng(self, purpose: str) -> Random:
        """Return numbers from the seed for one purpose, so that one does not disturb the others."""
        return Random(f"{self.seed}/{purpose}")

    def later(self, seconds: float, action: Callable[[], object]) -> None:
        """Call `action` later, as a part of no process."""
        self.loop.call_later(seconds, action, context=self._kernel)

    async def start(self) -> None:
        """Start the store and all brokers."""
        await self.store.call(self.loop.create_task, self.sessions.start())
        for machine in self.machines.values():
            machine.start()

    @property
    def wanted_machines(self) -> list[Machine]:
        """The machines whose brokers are part of the cluster, or will be again."""
        return [machine for machine in self.machines.values() if machine.is_wanted]

    def spawn(self, name: str, work: Callable[[], Coroutine[Any, Any, None]]) -> Process:
        """Start a client in a process of its own. An exception that escapes it is a problem."""
        process = Process(name, name)

        async def run() -> None:
            try:
                await work()
            except Exception as error:
                self.problems.append(f"{name} failed: {type(error).__name__}: {error}")
                raise

        process.call(self.loop.create_task, run())
        return process

    def kill_client(self, process: Process) -> None:
        self.trace.add(process.name, "is killed")
        process.end()
        self.network.end_process(process)

    @property
    def hosts(self) -> list[tuple[str, int]]:
        """The addresses of all brokers, for clients to begin with."""
        return [(machine.host, PORT) for machine in self.machines.values()]

    def topics(self) -> dict[str, TopicImage]:
        """Return the topics as the metadata store has them."""
        return {
            path.removeprefix(TOPICS): TopicImage.from_value(path.removeprefix(TOPICS), entry.value, entry.version)
            for path, entry in sorted(self.sessions.store.entries(TOPICS).items())
        }

    def _unhandled(self, _: object, context: dict[str, Any]) -> None:
        """Note an exception that no one has handled. Futures may be dropped with theirs."""
        error, process = context.get("exception"), current_process()
        if process is not None and "Future" not in context["message"]:
            self.trace.add(process.name, f"unhandled: {context['message']}: {error!r}")
            self.problems.append(f"unhandled in {process.name}: {context['message']}: {error!r}")

    def end(self) -> None:
        """End all processes, and drop what they have left. Log lines of that are not part of the run."""
        for machine in self.machines.values():
            if machine.process is not None:
                machine.process.end()
        self.store.end()
        self.has_ended = True
        self.loop.release()


class TraceHandler(logging.Handler):
    """Adds the log lines of brokers to the trace. A traceback of a broker is a problem."""

    def __init__(self, world: World) -> None:
        super().__init__(logging.INFO)
        self._world = world

    def emit(self, record: logging.LogRecord) -> None:
        if self._world.has_ended:
            return
        process = current_process()
        who = process.name if process is not None else "-"
        text = record.getMessage()
        error = record.exc_info[1] if record.exc_info else None
        if error is not None:
            text += f" [{type(error).__name__}: {error}]"
        text = _ADDRESS.sub("0x…", text.replace(str(self._world.base), "")).replace("\n", " ")
        self._world.trace.add(who, f"{record.levelname.lower()}: {text}")
        if error is not None:
            self._world.problems.append(f"traceback of {who}: {text}")
