"""Which assignor a group uses: one that all of its members know."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from skylog.groups.member import Member, Protocols


def can_join(protocols: Protocols, members: Iterable[Member]) -> bool:
    """Whether somebody with these protocols leaves the group one to choose."""
    return bool({name for name, _ in protocols}.intersection(*(member.supports() for member in members)))


def choose_protocol(members: Iterable[Member]) -> str:
    """The protocol that all members know and most would take first."""
    members = list(members)
    common = set.intersection(*(member.supports() for member in members))
    votes = Counter(next(name for name, _ in member.protocols if name in common) for member in members)
    return votes.most_common(1)[0][0]
