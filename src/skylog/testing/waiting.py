"""Waits for a condition that another thread or process fulfils."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def wait_until(condition: Callable[[], T], what: str, seconds: float = 60.0) -> T:
    """Wait until `condition` returns a truthy value, and return it. After a timeout, AssertionError names `what`."""
    deadline = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < deadline, f"waited {seconds} s for {what}"
        time.sleep(0.01)
    return found
