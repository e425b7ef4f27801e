"""Commits that arrive late are recognized by their connection."""

from __future__ import annotations

from skylog.groups import LateCommits


def test_a_commit_on_an_older_connection_than_the_last_one_is_late() -> None:
    commits = LateCommits()
    assert [commits.is_late("a", connection) for connection in (3, 3, 5, 3, 4, 5, 6)] == [
        False,
        False,
        False,
        True,
        True,
        False,
        False,
    ]


def test_each_client_has_its_own_connections() -> None:
    commits = LateCommits()
    assert not commits.is_late("a", 5)
    assert not commits.is_late("b", 3)
    assert commits.is_late("a", 3)


def test_the_clients_that_committed_last_are_remembered() -> None:
    commits = LateCommits(most_clients=2)
    for client in ("a", "b", "a", "c"):
        assert not commits.is_late(client, 5)
    assert commits.is_late("a", 4)
    assert commits.is_late("c", 4)
    assert not commits.is_late("b", 4)
