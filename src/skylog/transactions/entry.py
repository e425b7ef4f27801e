"""What is stored of a transactional id: an immutable entry, replaced by each change."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, NamedTuple

from skylog.model import NO_TIMESTAMP, TopicPartition
from skylog.transactions.state import TransactionState

LAST_EPOCH: Final = 32_766
"""The last epoch of a producer id that a client may have."""


class Producer(NamedTuple):
    """A producer id and its epoch."""

    producer_id: int
    epoch: int


@dataclass(frozen=True, slots=True)
class TransactionEntry:
    """The state of a transactional id.

    `producer` is the current producer of the id, and the only one that may use it. In a decided transaction it is the
    one whose markers are written: its epoch is higher than that of the records if the coordinator has aborted.
    `previous` is the producer that was replaced by this one on its own request (KIP-360), so that the request can be
    repeated; None from the next transaction on. Times are those of the wall clock. `start_ms` is that of the open or
    decided transaction.
    """

    producer: Producer
    timeout_ms: int
    state: TransactionState = TransactionState.EMPTY
    partitions: frozenset[TopicPartition] = frozenset()
    update_ms: int = NO_TIMESTAMP
    start_ms: int = NO_TIMESTAMP
    previous: Producer | None = None
