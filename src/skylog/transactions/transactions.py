"""All transactional ids of a coordinator's partition; converts them to records and back.

Pure, like `transaction`: the shell writes the records.
"""

from __future__ import annotations

import logging
import struct
from collections.abc import Iterator

from skylog.errors import MalformedRequestError
from skylog.transactions.entry import TransactionEntry
from skylog.transactions.state import TransactionState
from skylog.transactions.stored_records import (
    UnknownTransactionRecordError,
    decode_key,
    decode_value,
    encode_key,
    encode_value,
)
from skylog.transactions.transaction import Transaction

logger = logging.getLogger(__name__)

StoredRecord = tuple[bytes, bytes | None]
"""Key and value for `__transaction_state`."""


class Transactions:
    """Transactional ids. The open transactions are indexed, so that timeouts cost nothing for the others."""

    def __init__(self) -> None:
        self._all: dict[str, Transaction] = {}
        self._open: dict[str, Transaction] = {}

    def __len__(self) -> int:
        return len(self._all)

    def find(self, transactional_id: str) -> Transaction | None:
        return self._all.get(transactional_id)

    def get_or_create(self, transactional_id: str) -> Transaction:
        """Return an id's transaction. A new one must be dropped again if its first entry cannot be stored."""
        transaction = self._all.get(transactional_id)
        if transaction is None:
            transaction = self._all[transactional_id] = Transaction(transactional_id)
        return transaction

    def all(self) -> list[Transaction]:
        """Return those that are stored."""
        return [each for each in self._all.values() if each.entry is not None]

    def open(self) -> list[Transaction]:
        """Return those with an open transaction."""
        return list(self._open.values())

    def changed(self, transaction: Transaction) -> None:
        """Update the index after an entry was stored, or drop the id if its first one could not be."""
        entry, transactional_id = transaction.entry, transaction.transactional_id
        if entry is None:
            self.remove(transactional_id)
        elif entry.state is TransactionState.ONGOING:
            self._open[transactional_id] = transaction
        else:
            self._open.pop(transactional_id, None)

    def remove(self, transactional_id: str) -> None:
        self._all.pop(transactional_id, None)
        self._open.pop(transactional_id, None)

    def drop_all(self) -> Iterator[None]:
        """Drop everything, some in each step of the iteration."""
        self._open.clear()
        while self._all:
            self._all.popitem()
            yield

    # -- records

    def record(self, transactional_id: str, entry: TransactionEntry | None) -> StoredRecord:
        """Return the record of an entry, or the tombstone of the id if `entry` is None."""
        return encode_key(transactional_id), None if entry is None else encode_value(entry)

    def replay(self, key: bytes, value: bytes | None) -> None:
        """Apply a record. An unreadable one is logged and skipped."""
        try:
            transactional_id = decode_key(key)
            entry = None if value is None else decode_value(value)
        except (UnknownTransactionRecordError, MalformedRequestError, struct.error) as error:
            logger.warning("skipping an unreadable record of the transaction topic: %s", error)
            return
        if entry is None or entry.state is TransactionState.DEAD:
            self.remove(transactional_id)
            return
        transaction = self._all[transactional_id] = Transaction(transactional_id, entry)
        self.changed(transaction)
