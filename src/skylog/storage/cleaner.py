"""Compacts closed segments, from files to files, without access to the log that owns them.

It first reads the dirty part of the log and finds the last record of each key. Then it copies every segment up to there
without the records that a later one replaces. In the dirty part these are all but those it has found, so keys are read
once there, and a batch is opened again only if it keeps some of its records. Offsets, order, codecs and timestamps do
not change. It keeps:

* the newest record of each key, and every record beyond the capacity of the key table;
* a tombstone (a null value) until readers have had time to see it;
* the marker of a transaction until all its batches are gone, and then until readers have had time to see it: they may
  have read the batches before. The time is noted in the marker (KIP-534);
* an empty batch if it is the last of an idempotent producer, whose sequence must not be lost, or the last of its
  segment, because there may be no gap between segments; and the marker after the last batch of a producer.

Records of aborted transactions are dropped, and replace nothing.

Records are read with numpy, many batches at once: there is no Python object per record (`records/keyed_records.py`,
`key_table.py`). Another thread decompresses half of the batches. Neighbouring segments are merged up to the segment
size. The results stay in the log's folder `cleaning` until the log swaps them in. This runs in a separate process, so
that it does not delay the broker's event loop, and so that the broker does without numpy.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from typing import Final

import numpy as np

from skylog.durable_files import sync_directory
from skylog.records import BatchHeader, read_marker
from skylog.records.control import set_delete_horizon
from skylog.records.keyed_records import KeptRecords, KeyedRecords, open_blocks, read_keyed, read_times
from skylog.records.record_starts import Integers
from skylog.records.retain import rebuild
from skylog.storage.aborted_index import unpack_aborted
from skylog.storage.clean_job import FOLDER, SWAP_SUFFIX, CleanedSegment, CleanJob, CleanResult, SourceSegment
from skylog.storage.cleaned_transactions import CleanedTransactions
from skylog.storage.files import Buffer, FilePool, LogFile
from skylog.storage.key_table import Flags, HashCollisionError, KeyReader, KeyTable, Places
from skylog.storage.scan import Chunk, headers, scan_chunks
from skylog.storage.segment import Segment, segment_path

CHUNK_BYTES: Final = 8 * 1024 * 1024
_MAX_OFFSETS: Final = 0x3FFFFFFF
_AGES: Final = 8  # how finely segments are told apart by the time for which their tombstones stay

Batches = list[tuple[int, BatchHeader]]
"""Batches of a chunk: the position and the header of each."""


def clean(job: CleanJob) -> CleanResult:
    """Run a job. Raises OSError or InvalidBatchError; a failed job leaves only unreferenced files."""
    while True:
        try:
            return _Cleaning(job, KeyReader(os.urandom(16))).run()
        except HashCollisionError:  # the next salt gives other hashes
            continue


class _Cleaning:
    """One attempt to run a job."""

    def __init__(self, job: CleanJob, reader: KeyReader) -> None:
        self._job = job
        self._reader = reader
        self._latest = KeyTable()
        self._records_read = 0  # in this pass through the dirty part
        self._result = CleanResult(job.first_dirty_offset)

    def run(self) -> CleanResult:
        job = self._job
        folder = job.directory / FOLDER
        shutil.rmtree(folder, ignore_errors=True)
        for stale in job.directory.glob(f"*{SWAP_SUFFIX}"):  # of a job that failed: a restart must not finish it
            stale.unlink()
        folder.mkdir()
        self._result.clean_to = self._find_latest()
        self._records_read, self._kept = 0, self._latest.records()
        pool = FilePool()
        transactions = CleanedTransactions(unpack_aborted(job.aborted), job.sources[0].base_offset)
        for group in self._groups():
            self._rewrite(group, transactions, Segment(folder, group[0].base_offset, pool, create=True))
        sync_directory(folder)
        return self._result

    # -- the last record of each key

    def _find_latest(self) -> int:
        """Read the keys of the dirty part. Return the offset up to which the table reaches."""
        job = self._job
        transactions = CleanedTransactions(unpack_aborted(job.aborted), job.first_dirty_offset)
        for source in job.sources:
            if source.end_offset <= job.first_dirty_offset:
                continue
            for data, found in self._chunks(source):
                batches, numbers = [], []
                for at, header in found:
                    if not self._is_dirty(header):
                        continue
                    if header.is_control:
                        transactions.end(header, read_marker(data[at : at + header.size_bytes]))
                        continue
                    if not transactions.is_aborted(header):
                        batches.append((at, header))
                        numbers.append(self._records_read)
                    self._records_read += header.record_count
                full_at = self._add(data, batches, numbers)
                if full_at is not None:
                    return full_at
        return job.sources[-1].end_offset

    def _is_dirty(self, header: BatchHeader) -> bool:
        return header.end_offset > self._job.first_dirty_offset

    def _add(self, data: memoryview, batches: Batches, numbers: list[int]) -> int | None:
        """Add the keys of batches. Return the end of the batch that fills the table.

        `numbers` are those of their first records.
        """
        if not batches:
            return None
        records = read_keyed(data, batches, self._job.limit_bytes)
        rows = np.flatnonzero(records.key_lengths >= 0)
        keys, places = self._reader.read(records, rows), _places(records, rows, numbers)
        full_at = None
        if len(self._latest) + len(keys) >= self._job.max_keys:
            reached = np.cumsum(self._latest.new_keys(keys)) + len(self._latest) >= self._job.max_keys
            if reached.any():
                last = int(records.batches[rows[reached.argmax()]])
                full_at = batches[last][1].end_offset
                inside = records.batches[rows] <= last
                keys, places = keys.select(inside), places.select(inside)
        self._latest.add(keys, places)
        return full_at

    # -- new segments

    def _groups(self) -> Iterator[list[SourceSegment]]:
        """Yield groups of neighbouring segments that fit into one segment.

        They were cleaned at about the same time. A merged segment counts as cleaned when the latest of them was, so a
        log that is cleaned often would otherwise keep its tombstones for ever.
        """
        group: list[SourceSegment] = []
        for source in self._job.sources:
            if source.base_offset >= self._result.clean_to:
                break
            if group and (
                sum(each.size_bytes for each in group) + source.size_bytes > self._job.segment_bytes
                or source.end_offset - group[0].base_offset > _MAX_OFFSETS
                or self._age(source) != self._age(group[0])
            ):
                yield group
                group = []
            group.append(source)
        if group:
            yield group

    def _age(self, source: SourceSegment) -> int:
        if source.drops_tombstones:
            return -1
        return source.cleaned_ms // max(self._job.delete_retention_ms // _AGES, 1)

    def _rewrite(self, group: list[SourceSegment], transactions: CleanedTransactions, segment: Segment) -> None:
        """Write one new segment from a group of old ones."""
        last_batches = self._last_batches(group)
        for source in group:
            for chunk in self._chunks(source):
                batches = self._clean_chunk(chunk, source, transactions, segment, last_batches)
                self._write(batches, segment)
            self._result.read_bytes += source.size_bytes
        segment.seal()
        segment.file.sync()
        segment.sync_indexes()
        segment.close()
        cleaned_s = max(source.cleaned_ms for source in group) / 1000
        os.utime(segment.path, (cleaned_s, cleaned_s))
        self._result.segments.append(CleanedSegment(group[0].base_offset, group[-1].end_offset))

    def _write(self, batches: list[Buffer], segment: Segment) -> None:
        headers = [BatchHeader.read(batch) for batch in batches]
        rows = [(header.size_bytes, header.base_offset, header.max_timestamp) for header in headers]
        joined = b"".join(batches)
        segment.append_all([joined], len(joined), rows, self._job.index_interval_bytes)
        self._result.written_bytes += len(joined)

    def _clean_chunk(
        self,
        chunk: Chunk,
        source: SourceSegment,
        transactions: CleanedTransactions,
        segment: Segment,
        last_batches: set[int],
    ) -> list[Buffer]:
        """Return the batches of a chunk that are kept, some of them with fewer records."""
        data, found = chunk
        kept = self._kept_of(data, found, source)
        batches: list[Buffer] = []
        for at, header in found:
            raw = data[at : at + header.size_bytes]
            if header.is_control:
                batch = self._clean_marker(raw, header, transactions, segment, last_batches)
                self._result.dropped_records += batch is None
            elif header.base_offset >= self._result.clean_to:
                transactions.is_aborted(header)
                batch = raw
                self._result.kept_records += header.record_count
            else:
                records, number = next(kept)
                count = 0 if transactions.is_aborted(header) else records.counts[number]
                self._result.kept_records += count
                self._result.dropped_records += header.record_count - count
                if count == header.record_count and count:
                    batch = raw
                elif count:
                    batch = rebuild(header, records.block(number), count, records.timestamp_deltas[number])
                else:
                    batch = rebuild(header, b"", 0) if header.base_offset in last_batches else None
            if batch is not None:
                batches.append(batch)
        return batches

    def _kept_of(self, data: memoryview, found: Batches, source: SourceSegment) -> Iterator[tuple[KeptRecords, int]]:
        """Yield where the records are that stay, for each batch to be cleaned, as if no transaction was aborted."""
        contents = [row for row in found if not row[1].is_control and row[1].base_offset < self._result.clean_to]
        clean = [row for row in contents if not self._is_dirty(row[1])]
        dirty = contents[len(clean) :]
        for batches, find in ((clean, self._kept_of_clean), (dirty, self._kept_of_dirty)):
            if batches:
                kept = find(data, batches, source)
                yield from ((kept, number) for number in range(len(batches)))

    def _kept_of_clean(self, data: memoryview, batches: Batches, source: SourceSegment) -> KeptRecords:
        """Find the records without a later one in the dirty part."""
        records = read_keyed(data, batches, self._job.limit_bytes)
        keyed = np.flatnonzero(records.key_lengths >= 0)
        keeps: Flags = np.zeros(len(records), dtype=np.bool_)
        keeps[keyed] = ~self._latest.has(self._reader.read(records, keyed))
        if source.drops_tombstones:
            keeps &= ~records.tombstones
        rows = np.flatnonzero(keeps)
        counts = np.bincount(records.batches[rows], minlength=len(batches)).tolist()
        columns = (records.batches, records.begins, records.ends, records.timestamp_deltas)
        return KeptRecords(counts, records.raw, *(column[rows] for column in columns))

    def _kept_of_dirty(self, data: memoryview, batches: Batches, _source: SourceSegment) -> KeptRecords:
        """Find the records of the table. Batches of which all or none stay are not opened."""
        record_counts = np.array([header.record_count for _, header in batches], dtype=np.int64)
        edges = self._records_read + np.append(0, np.cumsum(record_counts))
        self._records_read = int(edges[-1])
        rows = np.searchsorted(self._kept.numbers, edges)
        counts = np.diff(rows)
        opened = np.flatnonzero((counts > 0) & (counts < record_counts))
        raw, block_starts, _ = open_blocks(data, [batches[number] for number in opened], self._job.limit_bytes)
        picked = np.repeat(np.arange(len(batches)), counts)
        starts = np.full(len(batches), -1, dtype=np.int64)
        starts[opened] = block_starts
        is_opened = starts[picked] >= 0
        picked = picked[is_opened]
        places = self._kept.select(np.arange(rows[0], rows[-1])[is_opened])
        begins, ends = places.begins + starts[picked], places.ends + starts[picked]
        _, timestamp_deltas, _ = read_times(np.frombuffer(raw, np.uint8), begins)
        return KeptRecords(counts.tolist(), raw, picked, begins, ends, timestamp_deltas)

    def _clean_marker(
        self,
        raw: memoryview,
        header: BatchHeader,
        transactions: CleanedTransactions,
        segment: Segment,
        last_batches: set[int],
    ) -> Buffer | None:
        """Return a control batch as it is kept; None if it is dropped. Enter an aborted transaction into the index."""
        marker = read_marker(raw)
        has_batches, aborted = transactions.end(header, marker)
        if has_batches and aborted is not None:
            segment.aborted.append(aborted)
        if has_batches or header.base_offset in last_batches:
            return raw
        if marker is None:
            return None
        horizon_ms = header.delete_horizon_ms
        if horizon_ms is None:
            return set_delete_horizon(raw, self._job.now_ms + self._job.delete_retention_ms)
        return raw if self._job.now_ms < horizon_ms else None

    def _last_batches(self, group: list[SourceSegment]) -> set[int]:
        """Return the base offsets of the batches in a group that are kept in any case.

        These are the last one of all, and of each idempotent producer the last one with records and a marker after it.
        """
        last: dict[int, int] = {}
        markers: dict[int, int] = {}
        base_offset = -1
        for source in group:
            file = self._open(source)
            for _, header in headers(file, 0, file.size_bytes):
                base_offset = header.base_offset
                if header.is_control:
                    markers[header.producer_id] = base_offset
                elif header.producer_id >= 0:
                    last[header.producer_id] = base_offset
                    markers.pop(header.producer_id, None)
        return {base_offset, *last.values(), *markers.values()}

    # -- old segments

    def _chunks(self, source: SourceSegment) -> Iterator[Chunk]:
        return scan_chunks(self._open(source), 0, source.base_offset, source.end_offset, CHUNK_BYTES)

    def _open(self, source: SourceSegment) -> LogFile:
        return LogFile(segment_path(self._job.directory, source.base_offset))


def _places(records: KeyedRecords, rows: Integers, numbers: list[int]) -> Places:
    """Return the places of records in batches whose records begin with `numbers`."""
    batches = records.batches[rows]
    first_rows = np.searchsorted(records.batches, np.arange(len(numbers)))
    starts = records.starts[batches]
    first_numbers = np.array(numbers, dtype=np.int64) - first_rows
    return Places(rows + first_numbers[batches], records.begins[rows] - starts, records.ends[rows] - starts)
