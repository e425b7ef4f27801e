"""A capture as a command, and what it has written."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from threading import Event as ThreadEvent
from typing import Any, NamedTuple

from skylog.capture.capture import CaptureRun, CaptureSettings, CaptureStatus
from skylog.capture.service import run_capture
from skylog.testing import consume

DONE_S = 120


class Event(NamedTuple):
    """A record: its key, and its value, None for a tombstone."""

    key: Any
    value: Any


class Captured:
    """A capture, which runs as often as a test wants: in this process, or as the command, which can be killed."""

    def __init__(self, url: str, bootstrap: str, tables: str, prefix: str, log: Path, **options: Any) -> None:
        """`options` are those of `CaptureSettings`."""
        self.settings = CaptureSettings(url, tables.split(","), prefix, bootstrap, **options)
        self.prefix, self.bootstrap = prefix, bootstrap
        self.statuses: list[CaptureStatus] = []
        self._log = log
        self._process: subprocess.Popen[bytes] | None = None

    def catch_up(self) -> None:
        """Run until everything that is in the database now is in the log."""
        run_capture(self.settings, ThreadEvent(), self.statuses.append, once=True)

    @contextmanager
    def running(self) -> Iterator[None]:
        """Run while the block runs."""
        stop = ThreadEvent()
        with ThreadPoolExecutor(1) as pool:
            done = pool.submit(run_capture, self.settings, stop, self.statuses.append)
            try:
                yield
            finally:
                stop.set()
                done.result(DONE_S)

    def start(self, *more: str) -> None:
        """Start the command."""
        settings = self.settings
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [
                    *(sys.executable, "-m", "skylog.cli.main", "capture", settings.url),
                    *("--tables", ",".join(settings.tables), "--prefix", self.prefix, "--bootstrap", self.bootstrap),
                    *("--envelope", settings.envelope, "--chunk-rows", str(settings.chunk_rows)),
                    *("--partitions", str(settings.partitions), *more),
                ],
                stdout=log,
                stderr=log,
            )

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def stop(self) -> None:
        assert self._process is not None
        self._process.terminate()
        assert self._process.wait(DONE_S) == 0, self.log()

    def kill(self) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.kill()
            self._process.wait()

    def log(self) -> str:
        """The end of what the command has printed."""
        return self._log.read_text()[-4000:]

    def events(self, table: str) -> list[Event]:
        """Return all records of a table, each partition in order."""
        return [
            Event(json.loads(message.key or b""), None if message.value is None else json.loads(message.value))
            for message in consume(self.bootstrap, f"{self.prefix}.{table}")
        ]

    def rows(self, table: str) -> dict[str, Any]:
        """Return the rows that the log has, by their key: of plain records, or of Debezium's."""
        rows: dict[str, Any] = {}
        for key, value in self.events(table):
            row = value["after"] if isinstance(value, dict) and "op" in value else value
            rows.pop(json.dumps(key), None)
            if row is not None:
                rows[json.dumps(key)] = row
        return rows


class InterruptionError(Exception):
    """Ends a run in its middle, as a kill does."""


def run_until(settings: CaptureSettings, rows: int) -> None:
    """Run until so many rows were taken from the stream, and leave everything as it is."""

    class StopAfter(ThreadEvent):
        def is_set(self) -> bool:
            if run.changes.rows >= rows:
                raise InterruptionError
            return False

    with ExitStack() as resources:
        run = CaptureRun(settings, resources)
        run.run(StopAfter(), lambda _: None)
