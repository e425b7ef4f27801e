"""Keeps tables fast to read: merges small files into large ones, hour by hour, and deletes files that are not needed.

All small files of an hour are merged when it had no new file for a while. An hour that is still written to is merged
when it has many very small files. Rows do not change. Readers of an earlier version find its files until they are
deleted.
"""

from __future__ import annotations

import logging
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from threading import Event, Thread
from typing import Any, Final

from skylog.pipeline.delta.errors import ConcurrentWriterError
from skylog.pipeline.delta.table_log import TableFile
from skylog.pipeline.table import LEAST_KEPT_MS, Table

logger = logging.getLogger(__name__)

SMALL: Final = 0.75  # of the target size; larger files are not merged
VERY_SMALL: Final = 1 / 16
MANY_FILES: Final = 64


@dataclass(frozen=True)
class UpkeepSettings:
    """When to merge files, and how long to keep files that the newest version does not have, for earlier versions."""

    after_ms: int = 10 * 60_000
    keep_ms: int = 7 * 24 * 3_600_000
    every_s: float = 10.0
    vacuum_every_s: float = 3600.0


def to_merge(files: Sequence[TableFile], file_size_bytes: int, now_ms: int, after_ms: int) -> bool:
    """Return whether to merge the files of one hour."""
    is_quiet = max(file.modified_ms for file in files) + after_ms <= now_ms
    limit = file_size_bytes * (SMALL if is_quiet else VERY_SMALL)
    return sum(file.size_bytes < limit for file in files) >= (2 if is_quiet else MANY_FILES)


class Upkeep:
    """Merges and deletes files of tables, from one thread at a time. A table that does not exist is skipped."""

    def __init__(self, tables: Sequence[Table], settings: UpkeepSettings) -> None:
        self._tables = tables
        self._settings = settings
        self._vacuumed_s = -settings.vacuum_every_s

    def run(self, stop: Event | None = None) -> int:
        """Do what is due. Return the number of merged hours. Checks `stop` before each hour."""
        merged = 0
        for table in self._tables:
            for hour in self._due(table):
                if stop is not None and stop.is_set():
                    return merged
                merged += self._merge(table, hour)
        if time.monotonic() - self._vacuumed_s >= self._settings.vacuum_every_s:
            self._vacuumed_s = time.monotonic()
            for table in self._tables:
                if table.exists():
                    table.vacuum(keep_ms=max(self._settings.keep_ms, LEAST_KEPT_MS))
        return merged

    def _due(self, table: Table) -> list[dict[str, Any]]:
        """Return the partition values of the hours to merge."""
        hours: dict[tuple[Any, ...], list[TableFile]] = defaultdict(list)
        for file in table.log().files() if table.exists() else ():
            hours[tuple(file.partition.items())].append(file)
        now_ms = time.time_ns() // 1_000_000
        return [
            dict(hour)
            for hour, files in hours.items()
            if to_merge(files, table.file_size_bytes, now_ms, self._settings.after_ms)
        ]

    def _merge(self, table: Table, hour: dict[str, Any]) -> int:
        try:
            figures = table.optimize(hour)
        except ConcurrentWriterError as error:
            logger.info("%s; the merge is retried", error)
            return 0
        removed, added = figures["numFilesRemoved"], figures["numFilesAdded"]
        logger.info("%s: merged %d files of %s into %d", table.target, removed, hour, added)
        return 1


@contextmanager
def keeping_up(upkeep: Upkeep, every_s: float | None, stop: Event) -> Iterator[None]:
    """Do what is due every `every_s` seconds while the block runs, or once after it if None."""
    if every_s is None:
        yield
        upkeep.run(stop)
        return
    ending = Event()
    thread = Thread(target=_run_until, args=(upkeep, every_s, ending), name="skylog-upkeep", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ending.set()
        thread.join()


def _run_until(upkeep: Upkeep, every_s: float, ending: Event) -> None:
    while not ending.wait(every_s):
        try:
            upkeep.run(ending)
        except Exception:
            logger.exception("merging small files failed; it is retried")
