"""Where the real code meets the simulation: every source of time, chance, threads, sockets and syncs, in one place.

Nothing of this costs the real broker anything. `simulated` replaces names in modules for the time of a run:

| what the code uses | what it gets |
|---|---|
| `perf_counter`, `monotonic` | virtual time |
| `os.urandom` (and so `uuid4`), the module `random`, `Random()` of the broker | numbers from the seed |
| `socket.socket` of the listener, its plain transport | a socket of the simulated network |
| `os.fsync`, `durable_files.sync_data` | a note of what is on the simulated disk |
| threads that close logs, the process that cleans logs | inline calls |
| limits of log lines | none, because they would depend on the run before |

The event loop itself is `loop.VirtualLoop`, and clocks, data directories and stores are arguments of a broker.
"""

from __future__ import annotations

import asyncio
import gc
import os
import random
import socket
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from random import Random
from types import SimpleNamespace
from typing import Any, Self, TypeVar

from skylog.broker.compactor import Compactor
from skylog.limited_logger import LimitedLogger
from skylog.net.transport import PlainTransport
from skylog.simulation.disk import Disk
from skylog.simulation.network import Network
from skylog.simulation.process import current_process
from skylog.simulation.sockets import ListeningSocket, TcpSocket
from skylog.storage.clean_job import CleanJob, CleanResult
from skylog.storage.cleaner import clean
from skylog.transactions import Moment, Transaction, TransactionEntry

T = TypeVar("T")
_INHERITED = object()
_USE_TIME_BY_NAME = ("skylog.audit.batch_headers", "skylog.cluster.shared_store")


class Patches:
    """Replaces attributes, and puts them back in the reverse order."""

    def __init__(self) -> None:
        self._before: list[tuple[Any, str, Any]] = []

    def setattr(self, target: Any, name: str, value: Any) -> None:
        self._before.append((target, name, target.__dict__.get(name, _INHERITED)))
        setattr(target, name, value)

    def undo(self) -> None:
        while self._before:
            target, name, value = self._before.pop()
            if value is _INHERITED:
                delattr(target, name)
            else:
                setattr(target, name, value)


class SimulatedTransport(PlainTransport):
    """A plain transport whose files are read and sent, because `sendfile` needs a real socket."""

    __slots__ = ("_simulated",)

    def __init__(self, sock: Any) -> None:
        super().__init__(sock)
        self._simulated: TcpSocket = sock

    def send_file(self, descriptor: int, position: int, length: int) -> int:
        data = os.pread(descriptor, length, position)
        return self._simulated.send(data) if data else 0


class InlineThreads:
    """Stands in for a thread pool whose threads the caller waits for."""

    def __init__(self, *_: object, **__: object) -> None:
        pass

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def map(self, function: Callable[[Any], T], items: Iterable[Any]) -> list[T]:
        return [function(item) for item in items]


@contextmanager
def simulated(network: Network, disks: Mapping[str, Disk], seed: str) -> Iterator[Patches]:
    """Replace everything that is not part of the simulation, until the end of the block."""
    patches = Patches()
    state, collects = random.getstate(), gc.isenabled()
    gc.disable()  # collections run finalizers at times that the seed does not determine
    random.seed(seed)
    try:
        _replace_time(patches, network.loop.time)
        _replace_chance(patches, Random(f"{seed}/ids"))
        _replace_sockets(patches, network)
        _replace_syncs(patches, disks)
        _replace_threads(patches)
        patches.setattr(LimitedLogger, "_log", _log_always)
        yield patches
    finally:
        patches.undo()
        random.setstate(state)
        if collects:
            gc.enable()


def begin_epochs_at(patches: Patches, epoch: int) -> None:
    """Let the first producer of each transactional id have this epoch, so that a run sees where epochs end."""
    store = Transaction._store

    def store_later(self: Transaction, entry: TransactionEntry, moment: Moment) -> TransactionEntry:
        if entry.producer.epoch == 0:
            entry = replace(entry, producer=entry.producer._replace(epoch=epoch))
        return store(self, entry, moment)

    patches.setattr(Transaction, "_store", store_later)


def _replace_time(patches: Patches, now: Callable[[], float]) -> None:
    """Replace what modules of skylog have imported from `time`, and the module where they use it by name."""
    real = {"perf_counter": time.perf_counter, "monotonic": time.monotonic}
    for name, module in sorted(sys.modules.items()):
        if name.startswith("skylog.") and not name.startswith("skylog.simulation"):
            for attribute, function in real.items():
                if module.__dict__.get(attribute) is function:
                    patches.setattr(module, attribute, now)
            if module.__dict__.get("time") is time and name in _USE_TIME_BY_NAME:
                patches.setattr(module, "time", SimpleNamespace(monotonic=now, sleep=lambda _: None))


def _replace_chance(patches: Patches, rng: Random) -> None:
    patches.setattr(os, "urandom", rng.randbytes)
    patches.setattr(sys.modules["skylog.broker.broker"], "Random", lambda: Random(rng.random()))


def _replace_sockets(patches: Patches, network: Network) -> None:
    listener = sys.modules["skylog.net.listener"]

    def new_socket(*_: object) -> ListeningSocket:
        process = current_process()
        assert process is not None
        return ListeningSocket(network, process)

    patches.setattr(listener, "socket", SimpleNamespace(**{**vars(socket), "socket": new_socket}))
    patches.setattr(listener, "PlainTransport", SimulatedTransport)


def _replace_syncs(patches: Patches, disks: Mapping[str, Disk]) -> None:
    def note_sync(descriptor: int) -> None:
        process = current_process()
        assert process is not None, "only simulated processes sync files"
        disks[process.host].note_sync(descriptor)

    patches.setattr(os, "fsync", note_sync)
    patches.setattr(sys.modules["skylog.durable_files"], "sync_data", note_sync)
    patches.setattr(sys.modules["skylog.storage.files"], "sync_data", note_sync)


def _replace_threads(patches: Patches) -> None:
    patches.setattr(sys.modules["skylog.storage.log_dir"], "ThreadPoolExecutor", InlineThreads)
    patches.setattr(Compactor, "_run", _clean_inline)


async def _clean_inline(_: Compactor, job: CleanJob) -> CleanResult:
    return await asyncio.get_running_loop().run_in_executor(None, clean, job)


def _log_always(limited: Any, level: int, message: str, args: tuple[object, ...], error: BaseException | None) -> None:
    limited._logger.log(level, message, *args, exc_info=error)
