"""Commits versions to a table and dies, as a killed process does, at the given rename: `python -m … TABLE COUNT`."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TypeVar

from skylog.spark.jobs.versioned_table import VersionedTable
from tests.spark.jobs.test_versioned_table import write_version

P = TypeVar("P", bound=Path)


def main(path: str, renames: int) -> None:
    rename = Path.rename
    left = renames

    def rename_or_die(self: P, target: str | os.PathLike[str]) -> P:
        nonlocal left
        if left == 0:
            os._exit(9)
        left -= 1
        return rename(self, target)

    Path.rename = rename_or_die  # type: ignore[method-assign]
    with VersionedTable(Path(path), history=frozenset(["changes"])) as table:
        write_version(table, 2)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
