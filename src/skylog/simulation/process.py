"""A simulated process: the tasks, timers and callbacks that stop together when it is killed.

Every callback of the event loop runs in a context, which inherits the process that it was scheduled from. The loop asks
the process before it runs a callback. So a process needs no cooperation to be killed or paused.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextvars import Context, ContextVar, copy_context
from typing import TypeVar

T = TypeVar("T")

_current: ContextVar[Process | None] = ContextVar("simulated_process", default=None)


class Process:
    """One process on a host. Its callbacks run while it is alive, and are held back while it is paused."""

    def __init__(self, name: str, host: str) -> None:
        self.name = name
        self.host = host
        self.is_alive = True
        self.disk_delay_s = 0.0
        """What each call of a thread takes longer at most: a slow disk."""
        self._is_paused = False
        self._held: list[asyncio.Handle] = []
        self._context = copy_context()
        self._context.run(_current.set, self)

    @property
    def is_paused(self) -> bool:
        return self._is_paused

    def call(self, function: Callable[..., T], *arguments: object) -> T:
        """Call a function as a part of this process. Tasks that it creates belong to the process."""
        return self._context.copy().run(function, *arguments)

    @property
    def context(self) -> Context:
        """A context for callbacks of this process."""
        return self._context

    def admits(self, handle: asyncio.Handle) -> bool:
        """Whether a callback may run now. A paused process keeps it for later."""
        if self._is_paused and self.is_alive:
            self._held.append(handle)
            return False
        return self.is_alive

    def pause(self) -> None:
        self._is_paused = True

    def resume(self) -> list[asyncio.Handle]:
        """Let it go on. Return the callbacks that were held back, in their order."""
        self._is_paused = False
        held, self._held = self._held, []
        return held

    def end(self) -> None:
        self.is_alive = False
        self._held = []


def current_process() -> Process | None:
    return _current.get()


def process_of(handle: asyncio.Handle) -> Process | None:
    return handle._context.get(_current)  # type: ignore[attr-defined, no-any-return]
