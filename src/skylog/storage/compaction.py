"""Compaction from the log's side: decides when a log is cleaned, and swaps cleaned segments in.

`cleaner` does the cleaning, in another process. A swap survives a crash at any point. One rename turns the new file
into `<base>-<end>.swap`, which from then on replaces the segments of its range. Only then are the old segments removed
and the file renamed to its final name. Opening a log finishes a swap after that first rename, and discards one before.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Final

from skylog.durable_files import sync_directory
from skylog.storage.admission import opening_limit_bytes
from skylog.storage.clean_job import FOLDER, SWAP_SUFFIX, CleanedSegment, CleanJob, SourceSegment
from skylog.storage.config import FOREVER, LogConfig
from skylog.storage.segment import INDEX_SUFFIXES, Segment, segment_bases, segment_path

_SWAP_NAME: Final = re.compile(r"(\d{20})-(\d{20})\.swap")


def plan(
    directory: Path,
    segments: Sequence[Segment],
    first_dirty_offset: int,
    stable_offset: int,
    config: LogConfig,
    now_ms: int,
    max_keys: int,
) -> CleanJob | None:
    """Return the cleaning job of a log, None if it is not due. `segments` are all segments, the active one last.

    Only what is below `stable_offset` is cleaned: it is on disk, replicated, and part of no open transaction.
    """
    sources: list[SourceSegment] = []
    dirty_bytes = 0
    oldest_dirty_ms = now_ms
    for segment, following in pairwise(segments):
        end_offset = following.base_offset
        is_dirty = end_offset > first_dirty_offset
        newest_ms = segment.newest_ms()
        if end_offset > stable_offset or (is_dirty and now_ms - newest_ms < config.min_compaction_lag_ms):
            break
        if is_dirty:
            dirty_bytes += segment.size_bytes
            oldest_dirty_ms = min(oldest_dirty_ms, newest_ms)
        modified_ms = int(segment.path.stat().st_mtime * 1000)
        drops_tombstones = not is_dirty and now_ms - modified_ms >= config.delete_retention_ms
        cleaned_ms = now_ms if is_dirty else modified_ms
        sources.append(SourceSegment(segment.base_offset, end_offset, segment.size_bytes, drops_tombstones, cleaned_ms))
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
        aborted=b"".join([segment.aborted.pack() for segment in segments]),
        now_ms=now_ms,
        delete_retention_ms=config.delete_retention_ms,
    )


def commit(directory: Path, cleaned: CleanedSegment) -> None:
    """Make a cleaned segment durably replace the segments of its range. Blocks on the disk. Raises OSError."""
    path = swap_path(directory, cleaned)
    os.rename(segment_path(directory / FOLDER, cleaned.base_offset), path)
    try:
        sync_directory(directory)
    except OSError:  # the log goes on with its segments: a restart must not replace them
        path.unlink(missing_ok=True)
        raise


def move_in(directory: Path, cleaned: CleanedSegment) -> None:
    """Rename a committed segment and its indexes to their final names, after the old segments are removed."""
    target = segment_path(directory, cleaned.base_offset)
    os.rename(swap_path(directory, cleaned), target)
    for suffix in INDEX_SUFFIXES:
        made = segment_path(directory / FOLDER, cleaned.base_offset).with_suffix(suffix)
        if made.exists():
            os.rename(made, target.with_suffix(suffix))


def swap_path(directory: Path, cleaned: CleanedSegment) -> Path:
    return directory / f"{cleaned.base_offset:020d}-{cleaned.end_offset:020d}{SWAP_SUFFIX}"


def finish_swaps(directory: Path) -> None:
    """Finish or discard swaps that a crash interrupted. Then each range is either old or new, never both."""
    for path in sorted(directory.glob(f"*{SWAP_SUFFIX}")):
        match = _SWAP_NAME.fullmatch(path.name)
        if match is None:
            path.unlink()
            continue
        cleaned = CleanedSegment(int(match[1]), int(match[2]))
        for base_offset in segment_bases(directory):
            if cleaned.base_offset <= base_offset < cleaned.end_offset:
                old = segment_path(directory, base_offset)
                for suffix in (*INDEX_SUFFIXES, ".log"):
                    old.with_suffix(suffix).unlink(missing_ok=True)
        move_in(directory, cleaned)
    shutil.rmtree(directory / FOLDER, ignore_errors=True)
