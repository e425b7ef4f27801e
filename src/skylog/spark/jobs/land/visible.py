"""The tree that readers see: hard links to the files that the commit log names, and to no others.

    WAREHOUSE/page_views/event_date=2026-03-01/event_hour=12/00000000000000000007-0-3fa90c1e.parquet
    WAREHOUSE/page_views__unparsed/event_date=…

A file that is new gets a link. Where files have been replaced, the hour's directory is built anew beside the tree and
exchanged for the old one in a single step: a reader lists the old files or the new ones, never both and never neither.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Collection
from pathlib import Path
from typing import Final

from skylog.spark.jobs.land.commit import Side
from skylog.spark.jobs.land.files import exchange, remove_tree

UNPARSED_SUFFIX: Final = "__unparsed"


class VisibleTree:
    """The links of one table to the files below `files`; directories are built in `staging`."""

    def __init__(self, table: Path, files: Path, staging: Path) -> None:
        self._roots = {Side.EVENTS: table, Side.UNPARSED: table.with_name(table.name + UNPARSED_SUFFIX)}
        self._files = files
        self._staging = staging

    def show(self, directory: str, names: Collection[str]) -> None:
        """Let `directory`, which is side, date and hour, have just the files `names`."""
        side, _, hour = directory.partition("/")
        target, source = self._roots[Side(side)] / hour, self._files / directory
        target.mkdir(parents=True, exist_ok=True)
        there = {entry.name for entry in os.scandir(target)}
        if there - set(names):
            self._replace(target, source, names)
        else:
            for name in sorted(set(names) - there):
                os.link(source / name, target / name)

    def _replace(self, target: Path, source: Path, names: Collection[str]) -> None:
        built = self._staging / uuid.uuid4().hex
        built.mkdir()
        for name in names:
            os.link(source / name, built / name)
        exchange(built, target)
        remove_tree(built)
