"""A read_committed consumer of a log, which drops the batches of aborted transactions."""

from __future__ import annotations

from dataclasses import dataclass, field

from skylog.records import check_batch, iterate_batches, read_marker, read_records
from skylog.storage import Log


@dataclass
class Reader:
    """A read_committed consumer, as Java's reads a response."""

    seen: list[tuple[int, bytes]] = field(default_factory=list)

    def take(self, data: bytes, aborted: list[tuple[int, int]], from_offset: int) -> int:
        assert aborted == sorted(aborted, key=lambda each: each[1])
        coming = list(aborted)
        dropped: set[int] = set()
        next_offset = from_offset
        for position, header in iterate_batches(data):
            while coming and coming[0][1] <= header.last_offset:
                dropped.add(coming.pop(0)[0])
            batch = data[position : position + header.size_bytes]
            marker = read_marker(batch) if header.is_control else None
            if marker is not None and not marker.commits:
                dropped.discard(header.producer_id)
            elif not header.is_control and not (header.is_transactional and header.producer_id in dropped):
                self.seen += [(each.offset, each.key or b"") for each in read_records(batch)]
            next_offset = header.end_offset
        assert not coming, "a transaction is listed that begins after the batches"
        self.seen = [each for each in self.seen if each[0] >= from_offset]
        return next_offset


def read_committed(log: Log, from_offset: int, max_bytes: int) -> list[tuple[int, bytes]]:
    """Offset and key of all records that a read_committed consumer gets from an offset on."""
    seen: list[tuple[int, bytes]] = []
    offset = from_offset
    while (found := log.read(offset, max_bytes, True, log.last_stable_offset)) is not None and found.length:
        reader = Reader()
        data = found.read()
        check_batch(data)
        offset = reader.take(data, log.aborted_in(found, offset), offset)
        seen += reader.seen
    return seen
