"""Heartbeats, dead connections and expiry, on a clock of its own."""

from __future__ import annotations

from math import inf

import pytest

from skylog.cluster.zookeeper.liveness import Liveness, Step

NEVER = 0.0  # no attempt to connect is under way


def connected(servers: int = 1) -> Liveness:
    """A session with a timeout of 6 s that was opened at 100 s."""
    liveness = Liveness(6.0, servers)
    liveness.connected(100.0, 100.5)
    return liveness


def test_a_session_expires_one_timeout_after_the_last_request_with_an_answer_was_sent() -> None:
    liveness = connected()
    liveness.answered(103.0)
    liveness.answered(102.0)
    liveness.disconnected()
    assert liveness.deadline == 109.0
    assert liveness.next_step(108.9, 108.5, None) is Step.NOTHING
    assert liveness.next_step(109.0, 108.5, None) is Step.EXPIRE
    assert liveness.next_step(1000.0, 108.5, None) is Step.EXPIRE


def test_a_session_that_was_never_opened_does_not_expire() -> None:
    liveness = Liveness(6.0, 1)
    assert liveness.deadline == inf
    assert liveness.next_step(1e9, 1e9, None) is Step.NOTHING
    assert liveness.next_check(100.0) == 100.5


def test_a_new_connection_is_contact_from_the_time_at_which_it_was_begun() -> None:
    liveness = connected()
    liveness.disconnected()
    liveness.connected(104.0, 105.0)
    assert liveness.deadline == 110.0


def test_a_heartbeat_is_due_if_nothing_was_answered_for_a_sixth_of_the_timeout() -> None:
    liveness = connected()
    assert liveness.next_step(100.9, NEVER, None) is Step.NOTHING
    assert liveness.next_step(101.0, NEVER, None) is Step.HEARTBEAT
    liveness.answered(100.9)
    assert liveness.next_step(101.0, NEVER, None) is Step.NOTHING


def test_a_request_without_an_answer_takes_the_place_of_a_heartbeat() -> None:
    assert connected().next_step(102.0, NEVER, unanswered_since=101.0) is Step.NOTHING


def test_a_connection_is_dropped_if_a_request_is_not_answered_for_a_third_of_the_timeout() -> None:
    liveness = connected()
    assert liveness.next_step(103.0, NEVER, unanswered_since=101.0) is Step.NOTHING
    assert liveness.next_step(103.1, NEVER, unanswered_since=101.0) is Step.DROP


def test_a_request_that_waited_for_the_connection_counts_from_then_on() -> None:
    liveness = connected()
    liveness.disconnected()
    liveness.connected(104.0, 104.5)
    assert liveness.next_step(106.0, NEVER, unanswered_since=101.0) is Step.NOTHING
    assert liveness.next_step(106.6, NEVER, unanswered_since=101.0) is Step.DROP


@pytest.mark.parametrize("servers", [1, 3])
def test_an_attempt_to_connect_leaves_time_for_the_other_servers(servers: int) -> None:
    liveness = connected(servers)
    liveness.disconnected()
    assert liveness.next_step(104.0, 104.0 - 4.0 / servers, None) is Step.NOTHING
    assert liveness.next_step(104.0, 103.9 - 4.0 / servers, None) is Step.DROP


def test_the_next_check_is_not_after_the_deadline() -> None:
    liveness = connected()
    assert liveness.next_check(103.0) == 103.5
    assert liveness.next_check(105.9) == 106.0
