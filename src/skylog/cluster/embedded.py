"""The metadata of a broker that runs alone: one JSON file in its data directory.

The file is replaced whole and durably by each commit, off the event loop: after a crash there is the state before a
commit or after it. A commit that has returned is on disk.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import orjson

from skylog.cluster.store import Change, Entry, Value, VersionConflictError
from skylog.errors import ErrorCode, KafkaError, SkylogError

FILE_NAME: Final = "metadata.json"
_FORMAT: Final = 1


class EmbeddedStore:
    """A `MetadataStore` in one file."""

    def __init__(self, directory: Path) -> None:
        self._path = directory / FILE_NAME
        self.is_new = not self._path.exists()
        self._entries = self._read()
        self._writing = asyncio.Lock()

    async def load(self, prefix: str) -> dict[str, Entry]:
        return {path: entry for path, entry in self._entries.items() if path.startswith(prefix)}

    async def commit(self, changes: Sequence[Change]) -> None:
        async with self._writing:
            entries = dict(self._entries)
            for path, value, expected_version in changes:
                present = entries.get(path)
                if (present.version if present else 0) != expected_version:
                    raise VersionConflictError(path)
                if value is not None:
                    entries[path] = Entry(value, expected_version + 1)
                elif present is not None:
                    del entries[path]
            try:
                await asyncio.get_running_loop().run_in_executor(None, self._write, entries)
            except OSError as error:
                raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"{self._path} cannot be written: {error}") from error
            self._entries = entries

    async def close(self) -> None:
        async with self._writing:
            pass  # the last commit has reached the disk

    def _write(self, entries: dict[str, Entry]) -> None:
        rows: dict[str, Value] = {
            path: {"version": entry.version, "value": entry.value} for path, entry in sorted(entries.items())
        }
        content = orjson.dumps({"format": _FORMAT, "entries": rows}, option=orjson.OPT_INDENT_2)
        temporary = self._path.with_suffix(".json.tmp")
        with open(temporary, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, self._path)
        directory = os.open(self._path.parent, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)

    def _read(self) -> dict[str, Entry]:
        try:
            document = orjson.loads(self._path.read_bytes())
        except FileNotFoundError:
            return {}
        except orjson.JSONDecodeError as error:
            raise SkylogError(f"{self._path} is damaged: {error}; restore it from a copy") from error
        if document.get("format") != _FORMAT:
            raise SkylogError(f"{self._path} has format {document.get('format')}, this skylog reads {_FORMAT}")
        return {path: Entry(row["value"], row["version"]) for path, row in document["entries"].items()}
