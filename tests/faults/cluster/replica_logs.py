"""The files of replicas: their batches, compared byte for byte, and the loss of what was not on disk yet."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path

from skylog.records import iterate_batches
from skylog.testing import wait_until
from tests.patience import patience


def segments(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.log"))


def batches(folder: Path) -> dict[int, bytes]:
    """The batches of a log by base offset. Segments may begin at other offsets on another replica."""
    found = {}
    for path in segments(folder):
        data = path.read_bytes()
        for position, header in iterate_batches(data):
            found[header.base_offset] = data[position : position + header.size_bytes]
    return found


def difference(folders: Mapping[int, Path]) -> str:
    """Return where replicas differ, the folders of which are given by node id; empty if they are identical.

    They are compared from the highest start of a log on.
    """
    logs = {node_id: batches(folder) for node_id, folder in folders.items()}
    start = max(min(log, default=0) for log in logs.values())
    first, *others = (({offset: log[offset] for offset in log if offset >= start}, node) for node, log in logs.items())
    for log, node_id in others:
        if log != first[0]:
            offsets = sorted(
                offset for offset in log.keys() | first[0].keys() if log.get(offset) != first[0].get(offset)
            )
            name = folders[node_id].name
            return f"{name}: brokers {first[1]} and {node_id} differ at {len(offsets)} batches: {offsets[:10]}"
    return ""


def wait_until_identical(data_dirs: Mapping[int, Path], topics: Iterable[str]) -> None:
    """Wait until all replicas of topics on these brokers are the same. Nobody may be producing."""
    for topic in topics:
        names = {folder.name for path in data_dirs.values() for folder in path.glob(f"{topic}-*")}
        for name in sorted(name for name in names if name.rpartition("-")[0] == topic):
            folders = {node: path / name for node, path in data_dirs.items() if (path / name).is_dir()}
            _wait_until_identical(folders)


def _wait_until_identical(folders: Mapping[int, Path]) -> None:
    try:
        wait_until(lambda: not difference(folders), "the same", patience(10))
    except AssertionError:
        raise AssertionError(difference(folders)) from None


def cut(folder: Path, offset: int) -> int:
    """Cut off the batches from `offset` on, as if they had not been on disk when the power failed. Return how many."""
    count = 0
    for path in reversed(segments(folder)):
        data = path.read_bytes()
        kept = 0
        for position, header in iterate_batches(data):
            if header.end_offset > offset:
                count += 1
            else:
                kept = position + header.size_bytes
        if kept < len(data):
            os.truncate(path, kept)
    return count
