"""Selects the segments that a log's retention settings allow to delete."""

from __future__ import annotations

from collections.abc import Sequence

from skylog.storage.config import LogConfig
from skylog.storage.segment import Segment


def count_expired(segments: Sequence[Segment], log_start_offset: int, config: LogConfig, now_ms: int) -> int:
    """Return how many of the oldest segments may be deleted. The active segment expires only by age."""
    excess = sum(segment.size_bytes for segment in segments) - config.retention_bytes
    count = 0
    for segment, following in zip(segments, [*segments[1:], None], strict=True):
        is_closed = following is not None
        expired = following is not None and following.base_offset <= log_start_offset
        if "delete" in config.cleanup_policy and not expired:
            if config.retention_ms >= 0:
                expired = now_ms - segment.newest_ms() > config.retention_ms
            if config.retention_bytes >= 0 and excess >= segment.size_bytes and is_closed:
                expired = True
        if not expired:
            break
        excess -= segment.size_bytes
        count += 1
    return count
