"""Reads ahead, for compaction: a thread reads and checks the next part of a log while the last one is processed."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")


def read_ahead(parts: Iterator[T]) -> Iterator[T]:
    """Yield the parts in their order, while a thread makes the next one. Its errors are raised here."""
    with ThreadPoolExecutor(1) as thread:
        following = thread.submit(next, parts, None)
        while (part := following.result()) is not None:
            following = thread.submit(next, parts, None)
            yield part
