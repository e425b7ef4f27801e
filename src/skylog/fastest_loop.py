"""The event loop of the broker: uvloop's where it is installed, otherwise asyncio's. Windows has no uvloop."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

try:
    import uvloop
except ImportError:
    uvloop = None  # type: ignore[assignment]

T = TypeVar("T")


def new_event_loop() -> asyncio.AbstractEventLoop:
    """Return a new event loop, which is not running."""
    return asyncio.new_event_loop() if uvloop is None else uvloop.new_event_loop()


def run_on_fastest_loop(main: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine to its end on a new event loop."""
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        return runner.run(main)
