"""Compaction of closed segments: from files to files, without the log that owns them.

First the dirty part of the log is read and the last offset of each key noted. Then every segment up to there is
written again without the records that a later one has replaced. Offsets, order, codecs and timestamps stay. What
is kept:

* the newest record of each key, and every record beyond what the map of keys could hold;
* a tombstone (a null value) until readers have had time to see it;
* a batch without records where it is the last of an idempotent producer, whose sequence must not be forgotten, or the
  last of its segment: segments follow each other without a hole.

Neighbouring segments are merged up to the segment size. The results lie in the folder `cleaning` of the log until the
log swaps them in. This runs in a process of its own, so that the broker's event loop does not notice it: one argument,
one result, both can be pickled.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from hashlib import blake2b
from pathlib import Path
from typing import Final, NamedTuple

from skylog.records import BatchHeader
from skylog.records.retain import Span, find_spans, open_block, rebuild
from skylog.storage.files import FilePool, LogFile, sync_directory
from skylog.storage.scan import scan
from skylog.storage.segment import Segment, segment_path

FOLDER: Final = "cleaning"
KEY_BYTES: Final = 200  # what one key takes in the map: a digest, an offset, and Python's overhead for both
_DIGEST_BYTES: Final = 16
_MAX_OFFSETS: Final = 0x3FFFFFFF


class Source(NamedTuple):
    """A closed segment as it is. `drops_tombstones`: it has been cleaned before, and long enough ago."""

    base_offset: int
    end_offset: int
    size_bytes: int
    drops_tombstones: bool


@dataclass(frozen=True, slots=True)
class CleanJob:
    """What to clean: `sources` are consecutive segments from the log's start, dirty from `first_dirty_offset` on."""

    directory: Path
    sources: tuple[Source, ...]
    first_dirty_offset: int
    segment_bytes: int
    index_interval_bytes: int
    limit_bytes: int
    max_keys: int


class CleanedSegment(NamedTuple):
    """A new segment in the folder `cleaning`, and the range of offsets whose segments it replaces."""

    base_offset: int
    end_offset: int


@dataclass(slots=True)
class CleanResult:
    """What a job has made. The log is clean up to `clean_to`."""

    clean_to: int
    segments: list[CleanedSegment] = field(default_factory=list)
    read_bytes: int = 0
    written_bytes: int = 0
    kept_records: int = 0
    dropped_records: int = 0


def clean(job: CleanJob) -> CleanResult:
    """Do the job. Raises OSError and InvalidBatchError, and then leaves only files that nobody will look at."""
    folder = job.directory / FOLDER
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    latest, clean_to = _latest_offsets(job)
    result = CleanResult(clean_to)
    pool = FilePool()
    for group in _groups(job, clean_to):
        _rewrite(job, group, latest, folder, pool, result)
    sync_directory(folder)
    return result


def _latest_offsets(job: CleanJob) -> tuple[dict[bytes, int], int]:
    """The last offset of each key in the dirty part, and up to where that is known: the map has a limit."""
    latest: dict[bytes, int] = {}
    clean_to = job.first_dirty_offset
    for source in job.sources:
        if source.end_offset <= job.first_dirty_offset:
            continue
        for _, header, block in _batches(job, source):
            if header.end_offset <= job.first_dirty_offset:
                continue
            for span in find_spans(block, header.record_count):
                if span.key is not None:
                    latest[_digest(span.key)] = header.base_offset + span.offset_delta
            clean_to = header.end_offset
            if len(latest) >= job.max_keys:
                return latest, clean_to
        clean_to = source.end_offset
    return latest, clean_to


def _groups(job: CleanJob, clean_to: int) -> Iterator[list[Source]]:
    """Neighbours that fit into one segment together."""
    group: list[Source] = []
    for source in job.sources:
        if source.base_offset >= clean_to:
            break
        if group and (
            sum(each.size_bytes for each in group) + source.size_bytes > job.segment_bytes
            or source.end_offset - group[0].base_offset > _MAX_OFFSETS
        ):
            yield group
            group = []
        group.append(source)
    if group:
        yield group


def _rewrite(
    job: CleanJob, group: list[Source], latest: dict[bytes, int], folder: Path, pool: FilePool, result: CleanResult
) -> None:
    """Write one new segment from a group of old ones."""
    last_of_producer, last_of_all = _last_batches(job, group)
    segment = Segment(folder, group[0].base_offset, pool, create=True)
    for source in group:
        for raw, header, block in _batches(job, source):
            spans = find_spans(block, header.record_count)
            kept = [span for span in spans if _is_kept(span, header, latest, result.clean_to, source.drops_tombstones)]
            result.kept_records += len(kept)
            result.dropped_records += len(spans) - len(kept)
            if not kept and header.base_offset not in (last_of_producer.get(header.producer_id), last_of_all):
                continue
            batch = raw if len(kept) == len(spans) else rebuild(header, block, kept)
            stored = header if batch is raw else BatchHeader.read(batch)
            segment.append(batch, stored.base_offset, stored.max_timestamp, job.index_interval_bytes)
            result.written_bytes += len(batch)
        result.read_bytes += source.size_bytes
    segment.seal()
    segment.file.sync()
    segment.sync_indexes()
    segment.close()
    result.segments.append(CleanedSegment(group[0].base_offset, group[-1].end_offset))


def _is_kept(span: Span, header: BatchHeader, latest: dict[bytes, int], clean_to: int, drops_tombstones: bool) -> bool:
    offset = header.base_offset + span.offset_delta
    if offset >= clean_to or header.is_control:
        return True
    if span.key is None or (span.is_tombstone and drops_tombstones):
        return False
    return latest.get(_digest(span.key), -1) <= offset


def _last_batches(job: CleanJob, group: list[Source]) -> tuple[dict[int, int], int]:
    """Base offset of the last batch of each idempotent producer in a group, and of the group's very last."""
    last: dict[int, int] = {}
    base_offset = -1
    for source in group:
        for _, header in scan(_open(job, source), 0, source.base_offset, source.end_offset):
            base_offset = header.base_offset
            if header.producer_id >= 0:
                last[header.producer_id] = base_offset
    return last, base_offset


def _batches(job: CleanJob, source: Source) -> Iterator[tuple[bytes, BatchHeader, bytes]]:
    """The batches of a segment: as they lie, their header, and their records as one block."""
    file = _open(job, source)
    for position, header in scan(file, 0, source.base_offset, source.end_offset):
        raw = file.read(position, header.size_bytes)
        yield raw, header, open_block(raw, header, job.limit_bytes)


def _open(job: CleanJob, source: Source) -> LogFile:
    return LogFile(segment_path(job.directory, source.base_offset))


def _digest(key: bytes) -> bytes:
    """A key as it is where it is short, its digest where it is not: the lengths keep the two apart."""
    return key if len(key) < _DIGEST_BYTES else blake2b(key, digest_size=_DIGEST_BYTES).digest()
