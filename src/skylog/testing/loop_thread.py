"""An event loop in a thread of the test process, for servers that tests control by plain calls."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from skylog.fastest_loop import new_event_loop

T = TypeVar("T")


class LoopThread:
    """Runs until `close`, or until the process ends."""

    def __init__(self, name: str) -> None:
        self._loop = new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name=name, daemon=True)
        self._thread.start()

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine on the loop; return its result or raise its exception."""
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result()

    def call(self, function: Callable[..., T], *arguments: Any) -> T:
        """Call a function on the loop; return its result or raise its exception."""

        async def called() -> T:
            return function(*arguments)

        return self.run(called())

    def close(self) -> None:
        """Cancel what still runs, and end the thread."""
        self.run(_cancel_others())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


async def _cancel_others() -> None:
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)
