"""Selects the assignor of a group: one that all members support."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from skylog.groups.member import Member


def choose_protocol(members: Iterable[Member]) -> str:
    """Return the protocol that all members support and most of them prefer."""
    members = list(members)
    common = set.intersection(*(member.supports() for member in members))
    votes = Counter(next(name for name, _ in member.protocols if name in common) for member in members)
    return votes.most_common(1)[0][0]
