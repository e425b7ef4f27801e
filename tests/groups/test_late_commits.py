"""Commits that arrive late are recognized by their connection."""

from __future__ import annotations

from skylog.groups import LateCommits
from skylog.groups.late_commits import HELD_BACK_S


def test_a_commit_on_an_older_connection_than_the_last_one_is_late() -> None:
    commits = LateCommits()
    late = [connection for connection in (3, 3, 5, 3, 4, 5, 6) if commits.is_late("a", connection, 0.0)]
    assert late == [3, 4]


def test_a_client_that_goes_on_with_an_older_connection_uses_both() -> None:
    commits = LateCommits()
    assert not commits.is_late("a", 5, 0.0)
    assert commits.is_late("a", 3, 1.0)
    assert commits.is_late("a", 3, 0.9 + HELD_BACK_S)
    assert not commits.is_late("a", 3, 1.0 + HELD_BACK_S)
    assert not commits.is_late("a", 5, 2.0 + HELD_BACK_S)
    assert not commits.is_late("a", 3, 2.0 + HELD_BACK_S)
    assert commits.is_late("a", 4, 2.0 + HELD_BACK_S)
    assert not commits.is_late("a", 6, 3.0 + HELD_BACK_S)
    assert commits.is_late("a", 3, 3.0 + HELD_BACK_S)


def test_each_client_has_its_own_connections() -> None:
    commits = LateCommits()
    assert not commits.is_late("a", 5, 0.0)
    assert not commits.is_late("b", 3, 0.0)
    assert commits.is_late("a", 3, 0.0)


def test_the_clients_that_committed_last_are_remembered() -> None:
    commits = LateCommits(most_clients=2)
    for client in ("a", "b", "a", "c"):
        assert not commits.is_late(client, 5, 0.0)
    assert commits.is_late("a", 4, 0.0)
    assert commits.is_late("c", 4, 0.0)
    assert not commits.is_late("b", 4, 0.0)
