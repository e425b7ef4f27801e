"""Repairs a damaged range of a log file in place, with the same batches from another replica.

Replicas are byte-identical below the high watermark, unless compaction has rewritten one of them. So what another
replica holds for the lost offsets either fits into the range exactly, or is refused with a MisfitError.

The write happens in another thread, while the log goes on: it appends and rolls, and retention or compaction may remove
the file, which the write does not disturb. Only a truncation would let new batches take the place of the range:
`Log.rewriting` excludes it, and after one the repair does nothing. A crash in the middle of the write leaves the range
damaged, as it was before.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import TYPE_CHECKING, Final

from skylog.errors import SkylogError
from skylog.model import NO_EPOCH
from skylog.records import HEADER_BYTES, BatchHeader, check_batch
from skylog.storage.segment import Segment
from skylog.storage.soundness import Damage, PartCheck

if TYPE_CHECKING:
    from skylog.storage.log import Log

MAX_RANGE_BYTES: Final = 64 * 1024 * 1024


class MisfitError(SkylogError):
    """Batches of another replica do not fit into a damaged range."""


class RangeRepair:
    """Collects the batches for one damaged range, then writes them. Implements `Check`.

    `add` batches until `missing_bytes` is 0, `run` in any thread, then `finish`. The range `is_repaired` then, unless
    the log has changed meanwhile.
    """

    def __init__(self, log: Log, segment: Segment, damage: Damage) -> None:
        self.damage = damage
        self.next_offset = damage.due_offset
        self.is_repaired = False
        self._log = log
        self._segment = segment
        self._file = segment.file
        self._truncations = log.truncations
        self._data = bytearray()
        entries = [(damage.due_offset, damage.position)]
        self._check = PartCheck(
            segment.soundness, self._file, entries, damage.end, damage.next_offset, log.epochs.epoch_of
        )

    @property
    def fetch_offset(self) -> int:
        """The offset from which on batches are missing. No replica can be asked for a deleted one."""
        return max(self.next_offset, self._log.log_start_offset)

    @property
    def missing_bytes(self) -> int:
        return self.damage.end - self.damage.position - len(self._data)

    def add(self, batches: memoryview) -> None:
        """Add whole batches, from the one at `next_offset` on. Those beyond the range are ignored.

        Raises MisfitError, and InvalidBatchError for a damaged batch.
        """
        if self.missing_bytes > MAX_RANGE_BYTES:
            raise MisfitError(f"a range of {self.missing_bytes} bytes is too large to repair")
        position = 0
        while self.missing_bytes and len(batches) - position >= HEADER_BYTES:
            header = check_batch(batches, position)
            self._check_fits(header)
            self._data += batches[position : position + header.size_bytes]
            self.next_offset = header.end_offset
            position += header.size_bytes
        if not position:
            raise MisfitError(f"the other replica has no batch at offset {self.next_offset}")
        if self.missing_bytes and self.next_offset >= self.damage.next_offset:
            raise MisfitError(f"the other replica has {self.missing_bytes} bytes less up to {self.next_offset}")

    def _check_fits(self, header: BatchHeader) -> None:
        epoch = self._log.epochs.epoch_of(header.base_offset)
        is_next = header.base_offset == self.next_offset or (
            self._log.config.is_compacted and header.base_offset > self.next_offset
        )
        if (
            not is_next
            or header.end_offset > self.damage.next_offset
            or header.size_bytes > self.missing_bytes
            or epoch not in (NO_EPOCH, header.partition_leader_epoch)
        ):
            raise MisfitError(
                f"the batch of offsets {header.base_offset} to {header.end_offset}, {header.size_bytes} bytes, epoch "
                f"{header.partition_leader_epoch}, does not fit: offsets {self.next_offset} to "
                f"{self.damage.next_offset}, {self.missing_bytes} bytes, epoch {epoch} are missing"
            )

    @property
    def key(self) -> Hashable:
        return "repair", self._check.key

    def run(self) -> None:
        """Write the batches, sync, and check them again. Raises OSError."""
        assert not self.missing_bytes, "the range is not complete"
        with self._log.rewriting:
            if self._is_void:
                return
            self._file.overwrite(self._data, self.damage.position)
        self._file.sync()
        self._check.run()

    @property
    def _is_void(self) -> bool:
        return self._log.truncations != self._truncations

    def finish(self) -> None:
        segment = self._segment
        if self._check.damages or self._is_void or segment not in self._log.segments:
            return
        segment.soundness.heal(self.damage)
        self.is_repaired = True


def plan_repairs(log: Log) -> list[RangeRepair]:
    """Return a repair of each damaged range below the high watermark. Raises OSError if a file cannot be opened."""
    return [
        RangeRepair(log, segment, damage)
        for segment in log.segments
        for damage in segment.soundness.damages
        if log.log_start_offset < damage.next_offset <= log.high_watermark and not log.is_retired
    ]
