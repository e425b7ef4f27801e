"""The states of a transactional id and the transitions between them."""

from __future__ import annotations

from enum import Enum
from typing import Final


class TransactionState(Enum):
    """The values are the names that DescribeTransactions returns."""

    EMPTY = "Empty"
    ONGOING = "Ongoing"
    PREPARE_COMMIT = "PrepareCommit"
    PREPARE_ABORT = "PrepareAbort"
    COMPLETE_COMMIT = "CompleteCommit"
    COMPLETE_ABORT = "CompleteAbort"
    DEAD = "Dead"

    @property
    def is_decided(self) -> bool:
        """Whether the transaction is committed or aborted, but not every partition has its marker yet."""
        return self in (TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT)

    @property
    def is_idle(self) -> bool:
        """Whether no transaction is open."""
        return self in (TransactionState.EMPTY, TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT)


_BEGINS: Final = "the producer adds a partition, which begins a transaction"
_INITIALIZES: Final = "a producer with this id starts, and gets a higher epoch"
_EXPIRES: Final = "the id has not been used for long"

TRANSITIONS: Final[dict[TransactionState, dict[TransactionState, str]]] = {
    TransactionState.EMPTY: {
        TransactionState.EMPTY: _INITIALIZES,
        TransactionState.ONGOING: _BEGINS,
        TransactionState.DEAD: _EXPIRES,
    },
    TransactionState.ONGOING: {
        TransactionState.ONGOING: "the producer adds more partitions",
        TransactionState.PREPARE_COMMIT: "the producer commits",
        TransactionState.PREPARE_ABORT: "the producer aborts, another one starts, or the transaction times out",
    },
    TransactionState.PREPARE_COMMIT: {TransactionState.COMPLETE_COMMIT: "every partition has its marker"},
    TransactionState.PREPARE_ABORT: {TransactionState.COMPLETE_ABORT: "every partition has its marker"},
    TransactionState.COMPLETE_COMMIT: {
        TransactionState.EMPTY: _INITIALIZES,
        TransactionState.ONGOING: _BEGINS,
        TransactionState.DEAD: _EXPIRES,
    },
    TransactionState.COMPLETE_ABORT: {
        TransactionState.EMPTY: _INITIALIZES,
        TransactionState.ONGOING: _BEGINS,
        TransactionState.DEAD: _EXPIRES,
    },
    TransactionState.DEAD: {},
}
"""The transitions from each state, with their causes. `Transaction` raises AssertionError for any other."""
