"""Each rule finds what it is there to find, and nothing in a history where all is well."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from skylog.simulation.checks import Stored, check, holes, violations, wrong_entries
from skylog.simulation.history import UNKNOWN, Answer, Commit, History, Message, Value, metadata_of
from skylog.simulation.topic_reading import sound_bytes
from tests.storage.logs import a_batch

A, B, C, D = (Value(0, number) for number in range(4))


def logs(*values: list[Value]) -> Stored:
    return {partition: dict(enumerate(log)) for partition, log in enumerate(values)}


STORED = logs([A, B, C], [D])


def history_of(stored: Stored) -> History:
    """Everything was acknowledged, read and committed by one member."""
    history = History()
    for partition, log in stored.items():
        messages = [Message(partition, offset, value) for offset, value in log.items()]
        history.acknowledged += messages
        history.assign("m", partition).messages += messages
        history.commits.append(Commit(partition, len(log), history.tick()))
        history.committed += [Answer(partition, offset, metadata_of(offset)) for offset in range(len(log) + 1)]
        history.watermarks += [Answer(partition, offset) for offset in range(len(log) + 1)]
    return history


def test_a_history_where_all_is_well_has_no_violations() -> None:
    assert violations(history_of(STORED), STORED) == []


def test_a_partition_that_moves_to_another_member_may_be_read_again_from_the_committed_offset() -> None:
    history = history_of(STORED)
    history.assign("n", 0).messages.append(Message(0, 3, D))
    history.commits.append(Commit(0, 4, history.tick()))
    stored = logs([A, B, C, D], [])
    history.assignments[1].messages.clear()
    history.acknowledged.pop()
    history.committed = history.watermarks = []
    assert violations(history, stored) == []


def test_a_message_that_was_stored_before_may_be_acknowledged_without_its_offset() -> None:
    history = history_of(STORED)
    history.acknowledged[1] = Message(0, UNKNOWN, B)
    assert violations(history, STORED) == []


def test_a_commit_that_was_given_up_may_arrive_late() -> None:
    history = history_of(STORED)
    history.committed += [Answer(0, 1, "at 1"), Answer(0, 3, "at 3")]
    history.assign("n", 0).messages += [Message(0, 1, B), Message(0, 2, C)]
    assert [line.split(":")[0] for line in violations(history, STORED)] == [
        "rewound",
        "the committed offset of partition 0 went back from 3 to 1",
    ]
    history.given_up.add((0, 2))
    assert len(violations(history, STORED)) == 2
    history.given_up.add((0, 1))
    assert violations(history, STORED) == []


def test_a_check_shows_what_it_finds() -> None:
    history = history_of(STORED)
    check(history, STORED)
    history.failed.append("timed out")
    with pytest.raises(AssertionError, match="1 violations:\ntimed out"):
        check(history, STORED)


def test_a_value_knows_its_bytes() -> None:
    assert Value.decode(Value(3, 17).encode(b"...")) == Value(3, 17)


@pytest.mark.parametrize(
    ("change", "found"),
    [
        (lambda h: h.failed.append("timed out"), "timed out"),
        (lambda h: h.acknowledged.append(Message(0, 3, Value(1, 0))), "lost write"),
        (lambda h: h.acknowledged.append(Message(0, 1, Value(1, 0))), "lost write"),
        (lambda h: h.acknowledged.append(Message(0, UNKNOWN, Value(1, 0))), "lost write"),
        (lambda h: h.assignments[0].messages.append(Message(0, 3, D)), "inconsistent read"),
        (lambda h: h.assignments[0].messages.pop(), "unseen: partition 0, offsets 2 of 3"),
        (lambda h: h.assignments.pop(0), "unseen: partition 0, offsets 0-2 of 3"),
        (lambda h: h.assignments[0].messages.pop(1), "poll skip"),
        (lambda h: h.assignments[0].messages.append(Message(0, 1, B)), "nonmonotonic poll"),
        (lambda h: h.assign("n", 0).messages.append(Message(0, 2, C)), "rewound"),
        (lambda h: h.committed.append(Answer(0, 2)), "the committed offset of partition 0 went back from 3 to 2"),
        (lambda h: h.committed.append(Answer(1, 2)), "the committed offset of partition 1 was 2, but it ends at 1"),
        (
            lambda h: h.committed.append(Answer(0, 3, "at 2")),
            "metadata: the committed offset 3 of partition 0 has 'at 2'",
        ),
        (lambda h: h.committed.append(Answer(0, 3, "")), "metadata"),
        (lambda h: h.watermarks.append(Answer(0, 1)), "the high watermark of partition 0 went back from 3 to 1"),
    ],
)
def test_a_violation_is_found(change: Callable[[History], object], found: str) -> None:
    history = history_of(STORED)
    change(history)
    assert any(line.startswith(found) for line in violations(history, STORED))


@pytest.mark.parametrize(
    ("stored", "found"),
    [
        (logs([A, B, C], [D, B]), "duplicate"),
        (logs([A, C, B], [D]), "disorder"),
        (logs([A, B], [D]), "lost write"),
    ],
)
def test_a_wrong_log_is_found(stored: Stored, found: str) -> None:
    assert any(line.startswith(found) for line in violations(history_of(STORED), stored))


def test_a_hole_in_a_log_is_found() -> None:
    assert holes("t-0", {0: 3, 3: 4, 4: 9}) == []
    assert holes("t-0", {0: 3, 5: 6, 6: 7}) == ["hole: t-0 has nothing from 3 to 4"]


def test_an_entry_of_an_index_that_points_to_no_batch_is_found() -> None:
    assert wrong_entries("t-0", [(3, 70)], {0: 0, 3: 70}) == []
    assert wrong_entries("t-0", [(3, 71), (4, 70)], {0: 0, 3: 70}) == [
        "index: t-0 has offset 3 at position 71, but it is at 70",
        "index: t-0 has offset 4 at position 70, but it is at None",
    ]


def test_batches_behind_a_damaged_one_are_not_judged() -> None:
    """Its length may be wrong: then it covers the next batches, whose index entries are right."""
    data = a_batch(2) * 4
    size_bytes = len(data) // 4
    assert sound_bytes(data) == len(data)
    data[size_bytes + 11] ^= 0x40  # in the length of the second batch
    assert sound_bytes(data) == size_bytes
