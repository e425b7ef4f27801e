"""What can be wrong with a table of the warehouse."""

from __future__ import annotations

from pathlib import Path

from skylog.errors import SkylogError


class TableError(SkylogError):
    """A table that cannot be written or read as asked. The message names its directory and says what to do."""


class ConcurrentWriterError(TableError):
    """Two jobs on one table: the second is refused, and nothing of it is in the table."""

    def __init__(self, path: Path) -> None:
        super().__init__(f"{path}: another land job writes this table; stop one of the two")
