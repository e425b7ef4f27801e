"""Control batches: the markers that end a transaction.

A marker is a batch of one record, with the attribute bits 4 (transactional) and 5 (control), the producer's id and
epoch, and no sequence. It takes one offset. Big-endian, as in Kafka::

    key    version int16 0, type int16: 0 abort, 1 commit
    value  version int16 0, coordinator_epoch int32
"""

from __future__ import annotations

from struct import Struct
from typing import Final, NamedTuple

from skylog.records.batch import DELETE_HORIZON, BatchHeader, Buffer, InvalidBatchError
from skylog.records.record import Record, build_batch, encode_record, read_records
from skylog.records.retain import reseal

ABORT: Final = 0
COMMIT: Final = 1

MARKER_BYTES: Final = 78
"""The size of every marker as a batch."""

_VERSION: Final = 0
_KEY = Struct(">hh")
_VALUE = Struct(">hi")


class Marker(NamedTuple):
    """How a transaction has ended, and the epoch of the coordinator that decided it."""

    commits: bool
    coordinator_epoch: int


def build_marker(
    producer_id: int, producer_epoch: int, *, commits: bool, coordinator_epoch: int, timestamp: int
) -> bytearray:
    """Build the control batch that ends a producer's transaction."""
    record = Record(
        key=_KEY.pack(_VERSION, COMMIT if commits else ABORT),
        value=_VALUE.pack(_VERSION, coordinator_epoch),
        timestamp=timestamp,
    )
    return build_batch(
        [record], producer_id=producer_id, producer_epoch=producer_epoch, transactional=True, control=True
    )


def set_delete_horizon(batch: Buffer, horizon_ms: int) -> bytes:
    """Return the same marker with the time from which compaction may delete it, as in Kafka (KIP-534).

    The time takes the place of the base timestamp, and the record's timestamp is relative to it.
    """
    header = BatchHeader.read(batch)
    (record,) = read_records(batch)
    body = encode_record(record, record.timestamp - horizon_ms, 0)
    changed = header._replace(attributes=header.attributes | DELETE_HORIZON, base_timestamp=horizon_ms)
    return reseal(changed, body)


def read_marker(batch: Buffer) -> Marker | None:
    """Read the marker of a control batch. None if compaction has emptied it, or if it does not end a transaction.

    Versions after 0 are read as 0, as Kafka does. Raises InvalidBatchError for a record that is too short.
    """
    record = next(iter(read_records(batch)), None)
    if record is None:
        return None
    if record.key is None or len(record.key) < _KEY.size:
        raise InvalidBatchError("a control record needs a key of four bytes")
    version, kind = _KEY.unpack_from(record.key)
    if version < 0:
        raise InvalidBatchError(f"a control record has version {version}")
    if kind not in (ABORT, COMMIT):
        return None
    if record.value is None or len(record.value) < _VALUE.size:
        raise InvalidBatchError("the marker of a transaction needs a value of six bytes")
    version, coordinator_epoch = _VALUE.unpack_from(record.value)
    if version < 0:
        raise InvalidBatchError(f"the marker of a transaction has version {version}")
    return Marker(kind == COMMIT, coordinator_epoch)
