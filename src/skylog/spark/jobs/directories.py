"""Directories that jobs write to: which ones can be used, and how Spark is given them. Opens nothing; no Spark.

Driver and executors write such a directory, and the driver renames, links and syncs files in it. So it must be a
directory of a file system that all of them have mounted. An object store is none.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from skylog.errors import SkylogError

_SCHEME: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):/")


class DirectoryError(SkylogError):
    """A place that no job can write to. The message says what to give instead."""


def check_directory(path: Path) -> Path:
    """The path, unless it is a URI: `Path` would make a relative path of it, and the rows would end up there."""
    match = _SCHEME.match(str(path))
    if match is None:
        return path
    if match[1] == "file":
        raise DirectoryError(
            f"'{path}' is a URI: give the path alone, such as /{str(path)[len('file:') :].lstrip('/')}"
        )
    raise DirectoryError(
        f"'{path}' is not on a mounted file system: give a directory that the driver and all executors have mounted, "
        f"and copy its files to {match[1]}: from there, or mount the store"
    )


def spark_path(path: Path) -> str:
    """How Spark is given a path. What follows the scheme is taken as it is: a percent sign is one, a space as well."""
    return f"file:{path.absolute()}"
