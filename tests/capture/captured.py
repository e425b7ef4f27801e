"""A capture as a command, and what it has written."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

from skylog.client import Admin
from skylog.testing import consume, wait_until

DONE_S = 60


class Event(NamedTuple):
    """A record: its key, and its value, None for a tombstone."""

    key: Any
    value: Any


class Captured:
    """`skylog capture`, which is started and stopped as often as a test wants."""

    def __init__(
        self, url: str, bootstrap: str, tables: str, prefix: str, log: Path, options: dict[str, str] | None = None
    ) -> None:
        self.url, self.bootstrap, self.prefix = url, bootstrap, prefix
        self._tables = tables
        self._log = log
        self._options = options or {}
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def start(self, *more: str) -> None:
        chosen = [part for name, value in self._options.items() for part in (f"--{name.replace('_', '-')}", value)]
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [
                    *(sys.executable, "-m", "skylog.cli.main", "capture", self.url, "--tables", self._tables),
                    *("--prefix", self.prefix, "--bootstrap", self.bootstrap, *chosen, *more),
                ],
                stdout=log,
                stderr=log,
            )

    def catch_up(self) -> None:
        """Run until everything that is in the database now is in the log."""
        self.start("--once")
        assert self._process is not None
        assert self._process.wait(DONE_S) == 0, self.log()

    def fail(self) -> str:
        """Run, expecting it to fail. Return what it says."""
        self.start("--once")
        assert self._process is not None
        assert self._process.wait(DONE_S) == 1, self.log()
        return self.log().splitlines()[-1]

    def stop(self) -> None:
        assert self._process is not None
        self._process.terminate()
        assert self._process.wait(DONE_S) == 0, self.log()

    def kill(self) -> None:
        if self._process is not None and self._process.poll() is None:
            os.kill(self._process.pid, signal.SIGKILL)
            self._process.wait()

    def log(self) -> str:
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

    def wait_for(self, table: str, count: int) -> list[Event]:
        """Wait until the topic of a table has so many records, and return them."""

        def found() -> list[Event]:
            assert self.is_running, self.log()
            known = {topic.name for topic in Admin(self.bootstrap).list_topics()}
            events = self.events(table) if f"{self.prefix}.{table}" in known else []
            return events if len(events) >= count else []

        return wait_until(found, f"{count} records of {table}", DONE_S)
