"""The state of a partition's idempotent and transactional producers.

With it, a batch that a producer retries is stored once, and the log knows which transactions are open.

Per producer id: its epoch, the last five batches (Kafka's clients have at most five in flight), and where its open
transaction begins. A batch whose sequence range is among the last ones is a duplicate, and its existing offset is
returned. Otherwise a batch must follow the last one without a gap. Sequences wrap at 2^31 and begin at 0 in each epoch.
The marker that ends a transaction may raise the epoch (KIP-890). A producer expires by the broker's clock, not by
message timestamps, which may have any value, and never while its transaction is open.

The state is a function of the log and can be rebuilt from batch headers and markers. Snapshots avoid reading them all:
see `producer_snapshot`.
"""

from __future__ import annotations

from collections.abc import Iterator
from struct import Struct
from typing import Final, NamedTuple

from skylog.errors import ErrorCode, KafkaError
from skylog.records import BatchHeader, Marker
from skylog.records.batch import TRANSACTIONAL
from skylog.storage.aborted_index import AbortedTransaction
from skylog.storage.open_transactions import OpenTransactions

REMEMBERED_BATCHES: Final = 5
NO_TRANSACTION: Final = -1
_SEQUENCE_MASK: Final = 0x7FFFFFFF
BATCH: Final = Struct("<iiqqq")
_KEPT_BYTES: Final = (REMEMBERED_BATCHES - 1) * BATCH.size


class StoredBatch(NamedTuple):
    """The sequences, offsets and timestamp of a stored batch."""

    base_sequence: int
    last_sequence: int
    base_offset: int
    last_offset: int
    timestamp: int


class ProducerEntry:
    """One producer's epoch, its last batches and its transaction.

    `last_seen_ms` is the broker's time of its last batch or marker. `marker_timestamp` is the time in the marker, if no
    batch has followed it, otherwise -1. `transaction_start` is the first offset of the open transaction, or
    NO_TRANSACTION. `last_marker_offset` is known only for markers since the log was opened.

    There may be hundreds of thousands of producers, so batches are kept packed, in the snapshot format.
    """

    __slots__ = (
        "coordinator_epoch",
        "epoch",
        "last_marker_offset",
        "last_seen_ms",
        "last_sequence",
        "marker_timestamp",
        "packed",
        "transaction_start",
    )

    def __init__(self, epoch: int, last_seen_ms: int) -> None:
        self.epoch = epoch
        self.last_seen_ms = last_seen_ms
        self.last_sequence = -1
        self.marker_timestamp = -1
        self.packed = b""
        self.transaction_start = NO_TRANSACTION
        self.coordinator_epoch = -1
        self.last_marker_offset = -1

    @property
    def batches(self) -> list[StoredBatch]:
        """The last batches, oldest first."""
        return [StoredBatch._make(fields) for fields in BATCH.iter_unpack(self.packed)]

    @property
    def last_timestamp(self) -> int:
        """The time in its last batch or marker; -1 if neither is known."""
        if self.marker_timestamp >= 0 or not self.packed:
            return self.marker_timestamp
        return self.batches[-1].timestamp

    @property
    def next_sequence(self) -> int:
        """The sequence with which the next batch of this epoch must begin."""
        return (self.last_sequence + 1) & _SEQUENCE_MASK

    def add(self, batch: StoredBatch) -> None:
        self.packed = self.packed[-_KEPT_BYTES:] + BATCH.pack(*batch)
        self.last_sequence = batch.last_sequence
        self.marker_timestamp = -1

    def restore(self, packed: bytes) -> None:
        self.packed = packed
        self.last_sequence = self.batches[-1].last_sequence if packed else -1

    def begin_epoch(self, epoch: int) -> None:
        """Take over another epoch, in which sequences begin again. An open transaction stays open."""
        self.epoch = epoch
        self.restore(b"")


class ProducerState:
    """The producers of one partition, by id. Used from the thread that appends."""

    def __init__(self) -> None:
        self._producers: dict[int, ProducerEntry] = {}
        self.transactions = OpenTransactions()

    def __iter__(self) -> Iterator[tuple[int, ProducerEntry]]:
        """Iterate over producer ids and entries."""
        return iter(self._producers.items())

    def __len__(self) -> int:
        return len(self._producers)

    def find(self, producer_id: int) -> ProducerEntry | None:
        return self._producers.get(producer_id)

    # -- batches

    def find_duplicate(self, header: BatchHeader, verified_at: int | None = None) -> StoredBatch | None:
        """Return the stored batch that `header` duplicates; None if the batch may be appended.

        Raises INVALID_PRODUCER_EPOCH for a fenced producer, OUT_OF_ORDER_SEQUENCE_NUMBER for a gap, and
        INVALID_TXN_STATE for a transactional batch outside of a transaction or another batch inside of one.

        A transactional batch begins a transaction only if the coordinator was asked when `last_marker_offset` was
        `verified_at`, and no marker has ended the transaction meanwhile (KIP-890). Batches of the broker itself have no
        sequence, and are verified.
        """
        entry = self._producers.get(header.producer_id)
        if entry is None:  # new, or all its records have been deleted: any sequence is valid (KIP-360)
            if header.attributes & TRANSACTIONAL:
                self._check_verified(header, verified_at)
            return None
        if header.producer_epoch < entry.epoch:
            raise _fenced(header.producer_id, header.producer_epoch, entry.epoch)
        sequence = header.base_sequence
        if header.producer_epoch > entry.epoch:
            if sequence > 0:
                raise _gap(header, 0)
        elif sequence >= 0:
            expected = entry.next_sequence
            if sequence != expected:
                stored = self.find_stored(header)
                if stored is None:
                    raise _gap(header, expected)
                return stored
        if header.attributes & TRANSACTIONAL:
            if entry.transaction_start < 0 or header.producer_epoch != entry.epoch:
                self._check_verified(header, verified_at)
        elif entry.transaction_start >= 0:
            raise KafkaError(
                ErrorCode.INVALID_TXN_STATE,
                f"producer {header.producer_id} sent a batch without a transaction, but one is open",
            )
        return None

    def find_stored(self, header: BatchHeader) -> StoredBatch | None:
        """Return the one of its producer's last batches with the epoch and the sequences of `header`."""
        entry = self._producers.get(header.producer_id)
        if entry is None or entry.epoch != header.producer_epoch:
            return None
        for stored in entry.batches:
            if stored.base_sequence == header.base_sequence and stored.last_sequence == header.last_sequence:
                return stored
        return None

    def _check_verified(self, header: BatchHeader, verified_at: int | None) -> None:
        if header.base_sequence >= 0 and verified_at != self.last_marker_offset(header.producer_id):
            raise KafkaError(
                ErrorCode.INVALID_TXN_STATE,
                f"the batch of producer {header.producer_id} is not part of an ongoing transaction",
            )

    def record(self, header: BatchHeader, base_offset: int, now_ms: int) -> None:
        """Add a batch stored at `base_offset`, received at `now_ms`."""
        entry = self._producers.get(header.producer_id)
        if entry is None:
            entry = self._producers[header.producer_id] = ProducerEntry(header.producer_epoch, now_ms)
        elif entry.epoch != header.producer_epoch:
            entry.begin_epoch(header.producer_epoch)
        entry.last_seen_ms = now_ms
        last_offset = base_offset + header.last_offset_delta
        entry.add(
            StoredBatch(header.base_sequence, header.last_sequence, base_offset, last_offset, header.max_timestamp)
        )
        if header.attributes & TRANSACTIONAL and entry.transaction_start < 0:
            entry.transaction_start = base_offset
            self.transactions.begin(base_offset)

    def hear(self, producer_id: int, now_ms: int) -> None:
        """Update the last-seen time of a known producer."""
        self._producers[producer_id].last_seen_ms = now_ms

    # -- transactions

    def has_open_transaction(self, producer_id: int, producer_epoch: int) -> bool:
        """Whether the transaction of a producer, in this epoch, has batches here and no marker."""
        entry = self._producers.get(producer_id)
        return entry is not None and entry.transaction_start >= 0 and entry.epoch == producer_epoch

    def has_late_transaction(self, latest_ms: int) -> bool:
        """Whether a transaction is open whose last batch was received at `latest_ms` or earlier."""
        if self.transactions.first_undecided() is None:
            return False
        return any(each.transaction_start >= 0 and each.last_seen_ms <= latest_ms for each in self._producers.values())

    def last_marker_offset(self, producer_id: int) -> int:
        """Return the offset of a producer's last marker since the log was opened; -1 if there is none."""
        entry = self._producers.get(producer_id)
        return -1 if entry is None else entry.last_marker_offset

    def check_marker(self, producer_id: int, producer_epoch: int, coordinator_epoch: int) -> None:
        """Raise INVALID_PRODUCER_EPOCH or TRANSACTION_COORDINATOR_FENCED for a marker that comes too late."""
        entry = self._producers.get(producer_id)
        if entry is None:
            return
        if producer_epoch < entry.epoch:
            raise _fenced(producer_id, producer_epoch, entry.epoch)
        if coordinator_epoch < entry.coordinator_epoch:
            raise KafkaError(
                ErrorCode.TRANSACTION_COORDINATOR_FENCED,
                f"producer {producer_id} has a marker of coordinator epoch {entry.coordinator_epoch}, "
                f"this one is of {coordinator_epoch}",
            )

    def end_transaction(
        self, header: BatchHeader, marker: Marker | None, offset: int, now_ms: int
    ) -> AbortedTransaction | None:
        """Add a control batch stored at `offset`. Return the transaction that it aborts, if that has any batches.

        `marker` is None if the batch does not end a transaction.
        """
        producer_id = header.producer_id
        entry = self._producers.get(producer_id)
        if entry is None:
            entry = self._producers[producer_id] = ProducerEntry(header.producer_epoch, now_ms)
        elif entry.epoch != header.producer_epoch:
            entry.begin_epoch(header.producer_epoch)
        entry.last_seen_ms = now_ms
        if marker is None:
            return None
        first_offset = entry.transaction_start
        entry.transaction_start = NO_TRANSACTION
        entry.coordinator_epoch = marker.coordinator_epoch
        entry.marker_timestamp = header.max_timestamp
        entry.last_marker_offset = offset
        if first_offset < 0:
            return None
        self.transactions.end(first_offset, offset)
        if marker.commits:
            return None
        undecided = self.transactions.first_undecided()
        return AbortedTransaction(producer_id, first_offset, offset, offset + 1 if undecided is None else undecided)

    # -- expiry and snapshots

    def expire(self, before_ms: int) -> int:
        """Remove producers last seen before `before_ms` that have no open transaction. Return their number."""
        silent = [
            key
            for key, entry in self._producers.items()
            if entry.last_seen_ms < before_ms and entry.transaction_start < 0
        ]
        for key in silent:
            del self._producers[key]
        return len(silent)

    def replace(self, producers: dict[int, ProducerEntry], ended: list[tuple[int, int]]) -> None:
        """Take over the state in a snapshot: all producers, and the ended transactions whose marker may get lost."""
        self._producers = producers
        starts = (entry.transaction_start for entry in producers.values() if entry.transaction_start >= 0)
        self.transactions = OpenTransactions(starts, ended)


def _fenced(producer_id: int, sent: int, current: int) -> KafkaError:
    return KafkaError(
        ErrorCode.INVALID_PRODUCER_EPOCH, f"producer {producer_id} has epoch {current}, the batch has {sent}"
    )


def _gap(header: BatchHeader, expected: int) -> KafkaError:
    return KafkaError(
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        f"producer {header.producer_id} sent sequence {header.base_sequence}, expected {expected}",
    )
