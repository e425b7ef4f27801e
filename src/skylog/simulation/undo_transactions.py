"""Undoes mends of bugs that others shipped with transactions, one at a time: see `undo`."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from typing import Any

from skylog.broker.transaction_verifier import TransactionVerifier
from skylog.records import BatchHeader
from skylog.simulation.undo import Patch
from skylog.storage.producer_state import NO_TRANSACTION, ProducerEntry, ProducerState, StoredBatch
from skylog.transactions import transaction as transaction_module
from skylog.transactions.entry import Producer
from skylog.transactions.transaction import Transaction


def append_without_verification(patch: Patch) -> None:
    """A batch that comes after the end of its transaction begins it again: nobody asks the coordinator."""

    async def stamp(_: TransactionVerifier, __: str, producer: Producer, partitions: Collection[Any]) -> dict[Any, int]:
        return {each.name: each.verification_stamp(producer.producer_id) for each in partitions}

    patch.setattr(TransactionVerifier, "verify", stamp)
    patch.setattr(ProducerState, "_check_verified", lambda *_: None)


def let_any_request_end_a_transaction(patch: Patch) -> None:
    """A request to end a transaction may have been meant for the one before."""
    end = Transaction.end

    def end_any(self: Transaction, producer: Any, commits: bool, now: Any, _: int) -> Any:
        return end(self, producer, commits, now, 1 << 62)

    patch.setattr(Transaction, "end", end_any)


def keep_open_transactions_in_memory(patch: Patch) -> None:
    restore = ProducerState.replace

    def replace_without(self: ProducerState, producers: dict[int, Any], ended: list[tuple[int, int]]) -> None:
        for entry in producers.values():
            entry.transaction_start = NO_TRANSACTION
        restore(self, producers, ended)

    patch.setattr(ProducerState, "replace", replace_without)


def compare_sequences_only(patch: Patch) -> None:
    """A batch of a new epoch is taken for one of the last epoch with the same sequences, which may be aborted."""
    find_duplicate = ProducerState.find_duplicate

    def begin_epoch(entry: ProducerEntry, epoch: int) -> None:
        entry.epoch = epoch

    def find_any(state: ProducerState, header: BatchHeader, verified_at: int | None = None) -> StoredBatch | None:
        entry = state.find(header.producer_id)
        if entry is not None and header.producer_epoch > entry.epoch and header.base_sequence >= 0:
            for stored in entry.batches:
                if (stored.base_sequence, stored.last_sequence) == (header.base_sequence, header.last_sequence):
                    return stored
        return find_duplicate(state, header, verified_at)

    patch.setattr(ProducerEntry, "begin_epoch", begin_epoch)
    patch.setattr(ProducerState, "find_duplicate", find_any)


def expire_by_the_last_batch(patch: Patch) -> None:
    """A marker is no sign of life: a producer whose last batch is old expires as soon as its transaction has ended."""
    end_transaction = ProducerState.end_transaction

    def end(state: ProducerState, header: BatchHeader, *arguments: Any) -> Any:
        entry = state.find(header.producer_id)
        seen_ms = entry.last_seen_ms if entry is not None else -1
        aborted = end_transaction(state, header, *arguments)
        state.hear(header.producer_id, seen_ms)
        return aborted

    patch.setattr(ProducerState, "end_transaction", end)


def give_the_last_epoch_to_clients(patch: Patch) -> None:
    """Nothing is left to fence the last producer with."""
    patch.setattr(transaction_module, "LAST_EPOCH", 32_767)


def raise_the_epoch_with_every_attempt(patch: Patch) -> None:
    """An abort that cannot be stored leaves its epoch behind, so the next attempt raises that."""
    storing_failed = Transaction.storing_failed

    def fail(self: Transaction) -> None:
        entry, storing = self.entry, self._storing
        storing_failed(self)
        if entry is not None and storing is not None and entry.producer.epoch < storing.producer.epoch:
            self.entry = replace(entry, producer=storing.producer)

    patch.setattr(Transaction, "storing_failed", fail)


def keep_an_id_that_was_never_stored(patch: Patch) -> None:
    """The first write fails, and leaves the id with epoch -1. It can never be removed: there is no such epoch."""
    storing_failed, begin_removal = Transaction.storing_failed, Transaction.begin_removal

    def fail(self: Transaction) -> None:
        entry, storing = self.entry, self._storing
        storing_failed(self)
        if entry is None and storing is not None:
            self.entry = replace(storing, producer=Producer(storing.producer.producer_id, -1))

    def remove(self: Transaction, moment: Any) -> None:
        assert self.entry is not None
        if self.entry.producer.epoch < 0:
            raise ValueError(f"{self.transactional_id} has the epoch {self.entry.producer.epoch}")
        begin_removal(self, moment)

    patch.setattr(Transaction, "storing_failed", fail)
    patch.setattr(Transaction, "begin_removal", remove)
