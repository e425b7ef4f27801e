"""The books of a history balance, and do not if a tier has counted wrong."""

from __future__ import annotations

from collections.abc import Sequence

from skylog.audit.report import Count, Report, Tier
from skylog.simulation.audit import READER, WINDOW_MS, Stamped, unbalanced
from skylog.simulation.history import History, Message, Value

FIRST, SECOND = 10 * WINDOW_MS, 11 * WINDOW_MS
STORED = {0: {0: Stamped(Value(0, 0), FIRST), 1: Stamped(Value(0, 1), FIRST + 1), 2: Stamped(Value(0, 2), SECOND)}}


def history_of(acknowledged: Sequence[int] = (0, 1, 2), read: Sequence[int] = (0, 1, 2)) -> History:
    history = History()
    messages = [Message(0, offset, stamped.value) for offset, stamped in STORED[0].items()]
    history.acknowledged += [messages[each] for each in acknowledged]
    history.assign(READER, 0).messages += [messages[each] for each in read]
    return history


def report(start_offset: int, end_offset: int, *windows: tuple[int, int]) -> Report:
    counts = [Count(start_ms, start_ms + WINDOW_MS, messages, 0) for start_ms, messages in windows]
    return Report(Tier.STORED, "broker-1", "t", counts, 0, 0, start_offset, end_offset)


RIGHT = [report(0, 1, (FIRST, 1)), report(1, 3, (FIRST, 1), (SECOND, 1))]


def test_the_books_balance_if_every_tier_has_counted_everything() -> None:
    assert unbalanced(RIGHT, history_of(), STORED) == []


def test_a_message_that_is_stored_without_an_acknowledgement_is_uncertain() -> None:
    assert unbalanced(RIGHT, history_of(acknowledged=(0, 1)), STORED) == []


def test_messages_that_a_broker_has_not_counted_are_found() -> None:
    assert len(unbalanced(RIGHT[:1], history_of(), STORED)) == 2
    assert len(unbalanced([], history_of(), STORED)) == 2


def test_messages_that_a_broker_has_counted_twice_are_found() -> None:
    (found,) = unbalanced([*RIGHT, report(3, 4, (SECOND, 1))], history_of(), STORED)
    assert f"from {SECOND}: " in found


def test_messages_that_were_not_read_are_found() -> None:
    assert unbalanced(RIGHT, history_of(read=(0, 1)), STORED)
    assert unbalanced(RIGHT, history_of(read=(0, 2)), STORED)


def test_a_late_report_replaces_what_it_overlaps() -> None:
    late = report(1, 2, (FIRST, 1))
    assert unbalanced([*RIGHT, late], history_of(), STORED)
    assert unbalanced([*RIGHT, late, report(2, 3, (SECOND, 1))], history_of(), STORED) == []
