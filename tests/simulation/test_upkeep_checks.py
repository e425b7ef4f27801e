"""The rules for compaction, retention, moved replicas and deleted topics find what they are there to find."""

from __future__ import annotations

from skylog.records import Record, build_batch
from skylog.simulation.checks import Stored, violations
from skylog.simulation.history import UNKNOWN, History, Message, Value
from skylog.simulation.upkeep import last_values
from skylog.simulation.upkeep_checks import (
    differing_last_values,
    missing_copies,
    missing_keys,
    resurrected,
    strays,
    undeleted,
    without_deleted,
    without_superseded,
)

A, B, C, D = (Value(0, number) for number in range(4))


def is_odd(value: Value) -> bool:
    return value.number % 2 == 1


def history_of(*messages: Message) -> History:
    """Everything was acknowledged and read."""
    history = History()
    history.acknowledged += messages
    history.assign("m", 0).messages += messages
    return history


ALL = [Message(0, offset, value) for offset, value in enumerate([A, B, C, D])]


def after_compaction(stored: Stored, history: History) -> list[str]:
    return violations(*without_superseded(history, stored, is_odd))


def test_compaction_may_remove_what_a_later_message_of_the_key_supersedes() -> None:
    assert after_compaction({0: {2: C, 3: D}}, history_of(*ALL)) == []
    assert after_compaction({0: {0: A, 2: C, 3: D}}, history_of(*ALL)) == []
    assert after_compaction({0: {0: A, 1: B, 2: C, 3: D}}, history_of(ALL[0], *ALL[2:])) == []
    assert after_compaction({0: {0: B, 2: C, 3: D}}, history_of(*ALL))[0].startswith("lost write")


def test_compaction_must_keep_the_last_message_of_a_key() -> None:
    found = after_compaction({0: {0: A, 3: D}}, history_of(*ALL))
    assert [line.partition(":")[0] for line in found] == ["lost write", "inconsistent read"]


def test_compaction_must_keep_offsets() -> None:
    assert any(line.startswith("unseen") for line in after_compaction({0: {2: C, 4: D}}, history_of(*ALL)))


def test_a_message_of_unknown_offset_may_be_superseded_but_its_key_stays() -> None:
    history = history_of()
    history.acknowledged.append(Message(0, UNKNOWN, A))
    assert after_compaction({0: {}}, history) == [f"lost write: {Message(0, UNKNOWN, A)}"]
    history.assignments[0].messages.append(ALL[2])
    assert after_compaction({0: {2: C}}, history) == []


def test_a_key_of_which_nothing_is_left_is_found() -> None:
    assert missing_keys(history_of(*ALL), {0: {2: C, 3: D}}, is_odd) == []
    assert missing_keys(history_of(*ALL), {0: {2: C}}, is_odd) == ["missing key: True of partition 0"]


def test_retention_may_delete_what_is_below_the_start() -> None:
    stored: Stored = {0: {2: C, 3: D}}
    assert violations(without_deleted(history_of(*ALL), stored, {0: 2}), stored) == []
    holed: Stored = {0: {1: B, 3: D}}
    found = violations(without_deleted(history_of(*ALL), holed, {0: 1}), holed)
    assert found[0].startswith("lost write")


def test_deleted_records_that_come_back_are_found() -> None:
    assert undeleted({0: 2}, {0: 2, 1: 0}) == []
    assert undeleted({0: 3}, {0: 2})[0].startswith("undeleted")


def test_compacted_replicas_end_with_the_same_values() -> None:
    first = {b"k": (7, b"v"), b"l": (8, b"w")}
    assert differing_last_values("t-0", {1: first, 2: dict(first)}) == []
    for other in ({b"k": (7, b"v")}, first | {b"k": (5, b"u")}, first | {b"m": (9, b"x")}):
        assert differing_last_values("t-0", {1: first, 2: other})[0].startswith("t-0: replicas 1 and 2 differ in 1")


def test_a_committed_copy_that_a_compacted_replica_lacks_is_found() -> None:
    assert missing_copies("c-0", {1: A, 5: B}, {1: A, 3: C, 5: B}) == []
    assert missing_copies("c-0", {1: A, 5: B}, {5: C}) == ["c-0 lacks 2 of 2 copies: [1, 5]"]


def test_a_value_of_a_deleted_topic_is_found() -> None:
    assert resurrected({0: {0: A}}, {B, C}) == []
    assert resurrected({0: {0: A, 1: B}}, {B, C})[0].startswith("resurrected: Value(producer=0, number=1) at 0:1")


def test_a_log_that_a_broker_has_no_replica_of_is_found() -> None:
    assert strays({1: ["t-0"], 2: []}, {1: {"t-0"}, 2: {"t-0"}}) == []
    assert strays({1: ["t-0", "u-0"]}, {1: {"t-0"}}) == ["stray: broker 1 keeps u-0"]


def test_a_damaged_batch_of_a_compacted_log_is_a_difference_until_it_is_repaired() -> None:
    batches = [bytes(build_batch([Record(b"%d" % number, b"k")], base_offset=number)) for number in range(3)]
    damaged = batches[1][:-1] + bytes([batches[1][-1] ^ 1])
    whole, other = last_values(batches, 3), last_values([batches[0] + damaged, batches[2]], 3)
    assert whole == {b"k": (2, b"2")}
    assert differing_last_values("t-0", {1: whole, 2: whole}) == []
    (found,) = differing_last_values("t-0", {1: whole, 2: other})
    assert "damaged: 1" in found
