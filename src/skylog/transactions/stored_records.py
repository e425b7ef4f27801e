"""The records of `__transaction_state`, in Kafka's format.

The key is a transactional id. The value is its current entry; a null value deletes it. Both begin with their version as
an int16. Version 1 of the value has tagged fields. It is written only if it is needed, for the producer that was
replaced on its own request, so that older tools can read the others.
"""

from __future__ import annotations

import struct
from typing import Final

from skylog.errors import SkylogError
from skylog.model import NO_PRODUCER_ID, TopicPartition
from skylog.protocol.schema import Int8, Int16, Int32, Int64, Message, field, message
from skylog.protocol.schema import struct as structure
from skylog.transactions.entry import LAST_EPOCH, Producer, TransactionEntry
from skylog.transactions.state import TransactionState

_VERSION: Final = struct.Struct(">h")
_NO_API: Final = -1
_KEY_VERSION: Final = 0

_STATES: Final = (
    TransactionState.EMPTY,
    TransactionState.ONGOING,
    TransactionState.PREPARE_COMMIT,
    TransactionState.PREPARE_ABORT,
    TransactionState.COMPLETE_COMMIT,
    TransactionState.COMPLETE_ABORT,
    TransactionState.DEAD,
)
_NUMBERS: Final = {state: number for number, state in enumerate(_STATES)}


@message(api_key=_NO_API, versions="0", flexible="none")
class TransactionKey(Message):
    transactional_id: str = field("0+")


@structure
class PartitionsValue:
    topic: str = field("0+")
    partition_ids: list[Int32] = field("0+")


@message(api_key=_NO_API, versions="0-1", flexible="1+")
class TransactionValue(Message):
    """`transaction_partitions` is null if there are none, as in Kafka."""

    producer_id: Int64 = field("0+")
    previous_producer_id: Int64 = field("1+", tag=0, default=NO_PRODUCER_ID)
    next_producer_id: Int64 = field("1+", tag=1, default=NO_PRODUCER_ID)
    producer_epoch: Int16 = field("0+")
    transaction_timeout_ms: Int32 = field("0+")
    transaction_status: Int8 = field("0+")
    transaction_partitions: list[PartitionsValue] | None = field("0+", nullable="0+")
    transaction_last_update_timestamp_ms: Int64 = field("0+")
    transaction_start_timestamp_ms: Int64 = field("0+")
    client_transaction_version: Int16 = field("1+", tag=2, default=0)


class UnknownTransactionRecordError(SkylogError):
    """A key or value has an unknown version or state."""


def encode_key(transactional_id: str) -> bytes:
    return _VERSION.pack(_KEY_VERSION) + TransactionKey(transactional_id=transactional_id).write(_KEY_VERSION)


def decode_key(data: bytes) -> str:
    (version,) = _VERSION.unpack_from(data)
    if version not in TransactionKey.versions:
        raise UnknownTransactionRecordError(f"unknown version {version} of a key")
    return TransactionKey.read(data, version, _VERSION.size)[0].transactional_id


def encode_value(entry: TransactionEntry) -> bytes:
    by_topic: dict[str, list[int]] = {}
    for name in sorted(entry.partitions):
        by_topic.setdefault(name.topic, []).append(name.partition)
    topics = [PartitionsValue(topic=topic, partition_ids=indexes) for topic, indexes in by_topic.items()]
    previous_id = entry.previous.producer_id if entry.previous is not None else NO_PRODUCER_ID
    version = 0 if entry.previous is None else 1
    value = TransactionValue(
        producer_id=entry.producer.producer_id,
        previous_producer_id=previous_id,
        producer_epoch=entry.producer.epoch,
        transaction_timeout_ms=entry.timeout_ms,
        transaction_status=_NUMBERS[entry.state],
        transaction_partitions=topics or None,
        transaction_last_update_timestamp_ms=entry.update_ms,
        transaction_start_timestamp_ms=entry.start_ms,
    )
    return _VERSION.pack(version) + value.write(version)


def decode_value(data: bytes) -> TransactionEntry:
    (version,) = _VERSION.unpack_from(data)
    if version not in TransactionValue.versions:
        raise UnknownTransactionRecordError(f"unknown version {version} of a value")
    value = TransactionValue.read(data, version, _VERSION.size)[0]
    if not 0 <= value.transaction_status < len(_STATES):
        raise UnknownTransactionRecordError(f"unknown state {value.transaction_status}")
    return TransactionEntry(
        producer=Producer(value.producer_id, value.producer_epoch),
        timeout_ms=value.transaction_timeout_ms,
        state=_STATES[value.transaction_status],
        partitions=frozenset(
            TopicPartition(each.topic, index)
            for each in value.transaction_partitions or ()
            for index in each.partition_ids
        ),
        update_ms=value.transaction_last_update_timestamp_ms,
        start_ms=value.transaction_start_timestamp_ms,
        previous=_previous(value),
    )


def _previous(value: TransactionValue) -> Producer | None:
    """Return the producer that this one has replaced. Its epoch follows: ids change only after the last epoch."""
    if value.previous_producer_id == NO_PRODUCER_ID:
        return None
    if value.previous_producer_id == value.producer_id:
        return Producer(value.producer_id, value.producer_epoch - 1)
    return Producer(value.previous_producer_id, LAST_EPOCH)
