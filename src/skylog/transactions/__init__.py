"""Transactional ids as pure state machines: events and the time go in, entries to be stored come out."""

from skylog.transactions.config import TransactionConfig
from skylog.transactions.entry import Producer, TransactionEntry
from skylog.transactions.state import TransactionState
from skylog.transactions.transaction import Moment, Transaction
from skylog.transactions.transactions import StoredRecord, Transactions

__all__ = [
    "Moment",
    "Producer",
    "StoredRecord",
    "Transaction",
    "TransactionConfig",
    "TransactionEntry",
    "TransactionState",
    "Transactions",
]
