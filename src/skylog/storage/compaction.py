"""Compaction as the log sees it: what is worth cleaning, and how cleaned segments take the place of old ones.

The work itself is `cleaner`'s, in another process. A swap survives a crash at any point: the new file becomes
`<base>-<end>.swap` in one rename, from which moment on it stands for the segments of its range; only then do the old
ones go and does it get its own name. Opening a log finishes a swap that was begun, and forgets one that was not.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Final

from skylog.storage.admission import opening_limit_bytes
from skylog.storage.cleaner import FOLDER, CleanedSegment, CleanJob, Source
from skylog.storage.config import FOREVER, LogConfig
from skylog.storage.files import sync_directory
from skylog.storage.segment import Segment, segment_bases, segment_path

SWAP_SUFFIX: Final = ".swap"
_SWAP_NAME: Final = re.compile(r"(\d{20})-(\d{20})\.swap")


def plan(
    directory: Path,
    segments: Sequence[Segment],
    first_dirty_offset: int,
    recovery_point: int,
    config: LogConfig,
    now_ms: int,
    max_keys: int,
) -> CleanJob | None:
    """The job that is due for a log, if one is. `segments` are all of them, the active one last."""
    sources: list[Source] = []
    dirty_bytes = 0
    oldest_dirty_ms = now_ms
    for segment, following in pairwise(segments):
        end_offset = following.base_offset
        is_dirty = end_offset > first_dirty_offset
        newest_ms = segment.newest_ms()
        if end_offset > recovery_point or (is_dirty and now_ms - newest_ms < config.min_compaction_lag_ms):
            break
        if is_dirty:
            dirty_bytes += segment.size_bytes
            oldest_dirty_ms = min(oldest_dirty_ms, newest_ms)
        modified_ms = int(segment.path.stat().st_mtime * 1000)
        drops_tombstones = not is_dirty and now_ms - modified_ms >= config.delete_retention_ms
        sources.append(Source(segment.base_offset, end_offset, segment.size_bytes, drops_tombstones))
    total_bytes = sum(source.size_bytes for source in sources)
    if not dirty_bytes or not total_bytes:
        return None
    overdue = config.max_compaction_lag_ms != FOREVER and now_ms - oldest_dirty_ms > config.max_compaction_lag_ms
    if dirty_bytes / total_bytes < config.min_cleanable_dirty_ratio and not overdue:
        return None
    return CleanJob(
        directory=directory,
        sources=tuple(sources),
        first_dirty_offset=max(first_dirty_offset, sources[0].base_offset),
        segment_bytes=config.segment_bytes,
        index_interval_bytes=config.index_interval_bytes,
        limit_bytes=opening_limit_bytes(config),
        max_keys=max_keys,
    )


def commit(directory: Path, cleaned: CleanedSegment) -> None:
    """Let a cleaned segment stand for its range, durably. Blocks on the disk."""
    os.rename(segment_path(directory / FOLDER, cleaned.base_offset), swap_path(directory, cleaned))
    sync_directory(directory)


def move_in(directory: Path, cleaned: CleanedSegment) -> None:
    """Give a committed segment and its indexes their own names, which the old ones have left."""
    target = segment_path(directory, cleaned.base_offset)
    os.rename(swap_path(directory, cleaned), target)
    for suffix in (".index", ".timeindex"):
        made = segment_path(directory / FOLDER, cleaned.base_offset).with_suffix(suffix)
        if made.exists():
            os.rename(made, target.with_suffix(suffix))


def swap_path(directory: Path, cleaned: CleanedSegment) -> Path:
    return directory / f"{cleaned.base_offset:020d}-{cleaned.end_offset:020d}{SWAP_SUFFIX}"


def finish_swaps(directory: Path) -> None:
    """Bring a log that was being compacted when its broker died into order: each range is old or new, never both."""
    for path in sorted(directory.glob(f"*{SWAP_SUFFIX}")):
        match = _SWAP_NAME.fullmatch(path.name)
        if match is None:
            path.unlink()
            continue
        cleaned = CleanedSegment(int(match[1]), int(match[2]))
        for base_offset in segment_bases(directory):
            if cleaned.base_offset <= base_offset < cleaned.end_offset:
                old = segment_path(directory, base_offset)
                for suffix in (".index", ".timeindex", ".log"):
                    old.with_suffix(suffix).unlink(missing_ok=True)
        move_in(directory, cleaned)
    shutil.rmtree(directory / FOLDER, ignore_errors=True)
