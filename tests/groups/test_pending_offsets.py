"""Offsets in open transactions: the same state live and after a replay of the log."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skylog.groups import CommittedOffset, GroupConfig, Groups, PendingOffsets
from skylog.model import NO_PRODUCER_ID, TopicPartition

A, B = TopicPartition("a", 0), TopicPartition("b", 0)


def at(offset: int) -> CommittedOffset:
    return CommittedOffset(offset, -1, "", 0)


def test_offsets_are_pending_until_their_transaction_ends() -> None:
    pending = PendingOffsets()
    pending.add(1, "g", {A: at(5), B: at(6)})
    pending.add(2, "h", {A: at(7)})
    assert pending.of_group("g") == {A, B}
    assert pending.groups_of(1) == ["g"]
    assert pending.end(1, True) == {"g": {A: at(5), B: at(6)}}
    assert pending.of_group("g") == set()
    assert pending.end(1, True) == {}
    assert pending.end(2, False) == {}
    assert len(pending) == 0


def test_a_later_commit_outside_of_the_transaction_replaces_them() -> None:
    pending = PendingOffsets()
    pending.add(1, "g", {A: at(5), B: at(6)})
    pending.replace("g", [A])
    pending.replace("h", [B])
    assert pending.end(1, True) == {"g": {B: at(6)}}


@pytest.mark.parametrize("last", [1, 2])
def test_of_two_transactions_the_later_record_counts_whichever_commits_last(last: int) -> None:
    shard = Shard()
    shard.commit(1, A, 5)
    shard.commit(1, B, 6)
    shard.commit(2, A, 7)
    shard.end(3 - last, True)
    assert shard.pending.of_group("g") == ({B} if last == 1 else {A})
    shard.end(last, True)
    assert shard.offsets() == {A: 7, B: 6}
    assert len(shard.pending) == 0


def test_of_two_transactions_the_earlier_record_counts_if_the_other_is_aborted() -> None:
    shard = Shard()
    shard.commit(1, A, 5)
    shard.commit(2, A, 7)
    shard.end(2, False)
    shard.end(1, True)
    assert shard.offsets() == {A: 5}


def test_offsets_in_deleted_topics_are_dropped() -> None:
    pending = PendingOffsets()
    pending.add(1, "g", {A: at(5), B: at(6)})
    pending.add(2, "g", {A: at(7)})
    assert {group: sorted(set(names)) for group, names in pending.remove_topics({"a"}).items()} == {"g": [A]}
    assert pending.of_group("g") == {B}
    assert len(pending) == 1


def test_unreadable_records_of_a_transaction_are_logged_and_skipped(caplog: pytest.LogCaptureFixture) -> None:
    pending = PendingOffsets()
    with caplog.at_level(logging.WARNING):
        pending.replay(1, b"\0\7", b"")
        pending.replay(1, b"", b"")
    assert len(caplog.records) == 2
    assert len(pending) == 0


@dataclass
class Shard:
    """The two parts of a shard's offsets, as `GroupShard` uses them."""

    groups: Groups = field(default_factory=lambda: Groups(GroupConfig()))
    pending: PendingOffsets = field(default_factory=PendingOffsets)

    def commit(self, producer_id: int, name: TopicPartition, offset: int) -> None:
        if producer_id == NO_PRODUCER_ID:
            self.pending.replace("g", [name])
            self.groups.commit("g", [(name, at(offset))])
        else:
            self.pending.add(producer_id, "g", {name: at(offset)})

    def end(self, producer_id: int, commits: bool) -> None:
        for group, offsets in self.pending.end(producer_id, commits).items():
            self.groups.commit(group, offsets.items())

    def replay(self, producer_id: int, name: TopicPartition, offset: int) -> None:
        key, value = self.groups.offset_record("g", name, at(offset))
        self.pending.replay(producer_id, key, value)
        if producer_id == NO_PRODUCER_ID:
            self.groups.replay(key, value)

    def offsets(self) -> dict[TopicPartition, int]:
        return {name: each.offset for name, each in self.groups.offsets_of("g").items()}


Commit = tuple[int, TopicPartition, int]
End = tuple[int, bool]
COMMITS = st.tuples(st.sampled_from([NO_PRODUCER_ID, 1, 2, 3]), st.sampled_from([A, B]), st.integers(0, 99))
ENDS = st.tuples(st.sampled_from([1, 2, 3]), st.booleans())


@given(st.lists(COMMITS | ENDS, max_size=20))
def test_a_replay_leads_to_the_same_state(log: list[Commit | End]) -> None:
    live, loaded, loaded_from_compacted = Shard(), Shard(), Shard()
    for event in log:
        if len(event) == 3:
            live.commit(*event)
        else:
            live.end(*event)
    kept = [event for place, event in enumerate(log) if place not in _removed_by_compaction(log)]
    for shard, events in ((loaded, log), (loaded_from_compacted, kept)):
        for event in events:
            if len(event) == 3:
                shard.replay(*event)
            else:
                shard.end(*event)
    counting = {place: event for place, event in enumerate(log) if len(event) == 3 and _outcome(log, place)}
    expected = {name: offset for _, name, offset in counting.values()}
    for shard in (live, loaded, loaded_from_compacted):
        assert shard.offsets() == expected
        assert shard.pending.of_group("g") == live.pending.of_group("g")
        assert len(shard.pending) == len(live.pending)


def _outcome(log: list[Commit | End], place: int) -> bool | None:
    """Whether a commit counts, None while its transaction is open."""
    producer_id = log[place][0]
    ends = (event[1] for event in log[place:] if len(event) == 2 and event[0] == producer_id)
    return True if producer_id == NO_PRODUCER_ID else next(ends, None)


def _removed_by_compaction(log: list[Commit | End]) -> set[int]:
    """The places of all commits before the first open transaction, except the last that counts of each partition."""
    commits = [place for place, event in enumerate(log) if len(event) == 3]
    is_open = [place for place in commits if _outcome(log, place) is None]
    cleaned = [place for place in commits if place < min(is_open, default=len(log))]
    newest = {log[place][1]: place for place in cleaned if _outcome(log, place)}
    return {place for place in cleaned if newest.get(log[place][1]) != place}
