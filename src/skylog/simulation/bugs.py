"""Bugs that others shipped and that the simulation looks for with the mend undone: a simulation must find something."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from skylog.simulation import undo, undo_transactions
from skylog.simulation.undo import Patch


@dataclass(frozen=True)
class Bug:
    """A bug by the id of its report, and how its mend is undone."""

    name: str
    what: str
    undo: Callable[[Patch], None]


BUGS: Final = {
    bug.name: bug
    for bug in (
        Bug("KIP-101", "followers truncate to the high watermark", undo.truncate_to_the_watermark_of_each_new_follower),
        Bug("KIP-101-logs", "logs that have diverged are not truncated", undo.never_find_a_divergence),
        Bug("KIP-279", "the own end of an epoch is ignored", undo.truncate_to_where_the_leader_says),
        Bug("KAFKA-6361", "a leader answers only for epochs that it has", undo.know_only_the_exact_epoch),
        Bug("KAFKA-7128", "a follower joins at a lagging watermark", undo.join_at_the_watermark),
        Bug("KAFKA-7164", "a follower that missed an epoch does not truncate", undo.look_for_a_divergence_once),
        Bug("KAFKA-7415", "an epoch without records is unknown", undo.forget_an_epoch_that_has_written_nothing),
        Bug("KAFKA-7897", "only a part of the epochs is known", undo.know_only_the_latest_epoch),
        Bug("KAFKA-10706", "a truncation keeps epochs without records", undo.keep_epochs_without_records),
        Bug("KAFKA-14704", "the watermark rises before the truncation", undo.raise_the_watermark_first),
        Bug(
            "KAFKA-9491",
            "a log that begins anew keeps its watermark",
            undo.keep_the_watermark_of_a_log_that_begins_again,
        ),
        Bug("KAFKA-13141", "the position of a diverging follower counts", undo.record_each_position),
        Bug("KAFKA-9838", "consumers read above the watermark", undo.read_to_the_end),
        Bug("KAFKA-9835", "an append after a truncation reaches a reader", undo.append_to_the_truncated_file),
        Bug("KAFKA-12686", "a joining replica is not waited for", undo.count_a_replica_when_it_is_in_the_store),
        Bug("KAFKA-12751", "a change of the in-sync set never ends", undo.never_end_a_change),
        Bug("KAFKA-13916", "former incarnations are elected and join", undo.do_not_check_incarnations),
        Bug("KAFKA-14617", "the fetches of a former process count", undo.serve_any_incarnation),
        Bug("KAFKA-14139", "a broker that has lost data stays in sync", undo.stay_in_sync_after_a_crash),
        Bug("KAFKA-18723", "a follower takes batches of any epoch", undo.take_any_epoch_from_a_truncated_file),
        Bug("KAFKA-6082", "a former controller writes", undo.write_as_any_controller),
        Bug("KAFKA-2729", "a stale version is repeated for ever", undo.repeat_with_the_version_that_was_known),
        Bug("KIP-890", "a late batch begins a transaction again", undo_transactions.append_without_verification),
        Bug(
            "KAFKA-17754",
            "a late request ends the next transaction",
            undo_transactions.let_any_request_end_a_transaction,
        ),
        Bug("KAFKA-9144", "producers expire by their last batch", undo_transactions.expire_by_the_last_batch),
        Bug("KAFKA-14880", "a failed first write leaves epoch -1", undo_transactions.keep_an_id_that_was_never_stored),
        Bug("KAFKA-18660", "the last epoch cannot be fenced", undo_transactions.give_the_last_epoch_to_clients),
        Bug("KAFKA-19367", "each attempt raises the epoch", undo_transactions.raise_the_epoch_with_every_attempt),
        Bug("Redpanda-5026", "aborted batches match duplicates", undo_transactions.compare_sequences_only),
        Bug(
            "Redpanda-6018",
            "open transactions are lost with the process",
            undo_transactions.keep_open_transactions_in_memory,
        ),
    )
}
