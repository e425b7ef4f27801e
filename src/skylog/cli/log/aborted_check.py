"""Compares the index of aborted transactions of a segment with the markers in its log."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from skylog.cli.log.index_check import IndexProblemError
from skylog.cli.log.segment_files import ReadOnlyFile
from skylog.records import BatchHeader, InvalidBatchError, read_marker
from skylog.storage.aborted_index import ENTRY_BYTES, AbortedTransaction, read_aborted

NO_OFFSET = -1


class EndedTransaction(NamedTuple):
    """A transaction as the log shows it.

    `first_offset` is that of its first batch with records, NO_OFFSET if there is none: compaction removes them.
    `previous_marker` is the end of the producer's transaction before, NO_OFFSET if it is not known.
    """

    producer_id: int
    first_offset: int
    marker_offset: int
    previous_marker: int
    commits: bool


class TransactionHistory:
    """Follows the transactions of a log, batch by batch, over all of its segments."""

    def __init__(self) -> None:
        self._first_offsets: dict[int, int] = {}
        self._markers: dict[int, int] = {}

    def add(self, file: ReadOnlyFile, position: int, header: BatchHeader) -> EndedTransaction | None:
        """Add a batch. Return the transaction that it ends. A marker that cannot be read ends none."""
        if not header.is_transactional:
            return None
        producer_id = header.producer_id
        if not header.is_control:
            if header.record_count:
                self._first_offsets.setdefault(producer_id, header.base_offset)
            return None
        try:
            marker = read_marker(file.read(position, header.size_bytes))
        except InvalidBatchError:
            return None
        if marker is None:
            return None
        first_offset = self._first_offsets.pop(producer_id, NO_OFFSET)
        previous = self._markers.get(producer_id, NO_OFFSET)
        self._markers[producer_id] = header.base_offset
        return EndedTransaction(producer_id, first_offset, header.base_offset, previous, marker.commits)


def check_aborted_index(path: Path, ended: list[EndedTransaction], size_bytes: int) -> None:
    """Check that the index has the aborted transactions among `ended` and no others. Raises IndexProblemError.

    An entry may begin before the first batch that is left of its transaction, but not before the end of the
    producer's transaction before: readers drop everything of the producer in between.
    """
    entries: list[AbortedTransaction] = []
    try:
        entries, sealed_size_bytes = read_aborted(path)
    except FileNotFoundError:
        sealed_size_bytes = size_bytes
    except ValueError as error:
        raise IndexProblemError(0, str(error)) from error
    aborted = {each.marker_offset: each for each in ended if not each.commits}
    for index, entry in enumerate(entries):
        problem = _problem(entry, aborted.pop(entry.last_offset, None))
        if problem is not None:
            raise IndexProblemError(index * ENTRY_BYTES, f"entry {index} {problem}")
    end = len(entries) * ENTRY_BYTES
    for each in aborted.values():
        if each.first_offset != NO_OFFSET:
            raise IndexProblemError(
                end,
                f"the transaction of producer {each.producer_id}, aborted at offset {each.marker_offset}, is missing",
            )
    if sealed_size_bytes != size_bytes:
        raise IndexProblemError(end, f"the seal is for a log of {sealed_size_bytes} bytes, but it has {size_bytes}")


def _problem(entry: AbortedTransaction, found: EndedTransaction | None) -> str | None:
    if found is None or found.producer_id != entry.producer_id:
        return (
            f"says that a transaction of producer {entry.producer_id} is aborted at offset {entry.last_offset}, but "
            "the log does not"
        )
    if found.first_offset != NO_OFFSET and entry.first_offset > found.first_offset:
        return f"begins at offset {entry.first_offset}, but its transaction at {found.first_offset}"
    if entry.first_offset <= found.previous_marker:
        return f"begins at offset {entry.first_offset}, in a transaction that has ended at {found.previous_marker}"
    return None
