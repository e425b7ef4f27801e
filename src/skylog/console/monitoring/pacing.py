"""Repeats a query of the cluster every few seconds.

The interval grows with the duration of a query, so that it takes at most a tenth of the time. After a failure the next
attempt follows soon.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Final, NoReturn

from skylog.console.monitoring.history import INTERVAL_S

MAX_SHARE: Final = 10
_MIN_PAUSE_S: Final = 1.0


async def repeat(query: Callable[[], Awaitable[bool]]) -> NoReturn:
    """Run until cancelled. `query` returns whether it succeeded."""
    while True:
        began = time.monotonic()
        has_succeeded = await query()
        took_s = time.monotonic() - began
        pause_s = took_s * (MAX_SHARE - 1) if has_succeeded else 0.0
        await asyncio.sleep(max(INTERVAL_S - took_s, pause_s, _MIN_PAUSE_S))
