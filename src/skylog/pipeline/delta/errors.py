"""Errors of tables."""

from __future__ import annotations

from skylog.errors import SkylogError


class TableError(SkylogError):
    """A table cannot be written or read. The message names the table and a solution."""


class TableSchemaError(TableError):
    """A column cannot be written as it is: its type would change, or its name or type is not possible."""


class ConcurrentWriterError(TableError):
    """Another job writes the table. This one has written nothing."""

    def __init__(self, uri: str, detail: str = "") -> None:
        super().__init__(f"{uri}: another job is writing this table{detail}; stop one of them, or use another table")


class LostFilesError(TableError):
    """The driver does not see the files that tasks have written. Nothing was committed."""

    def __init__(self, uri: str, path: str) -> None:
        super().__init__(
            f"{uri}: a task wrote {path}, but the driver does not see it, so nothing was committed; use a path that "
            "the driver and all executors have mounted, or an object store (s3://…)"
        )
