"""A change of the in-sync set that is on its way to the metadata store, while the store reports another change."""

from __future__ import annotations

from skylog.replication import LeaderState

OURS, OTHER, JOINING = 1, 2, 3


def leader_with(in_sync: list[int], min_in_sync: int = 1) -> LeaderState:
    leading = LeaderState(OURS, 0)
    leading.update([OURS, OTHER, JOINING], in_sync, min_in_sync, now_s=0.0)
    leading.followers[OTHER].fetched(1, 10, 0, 10, 0.0)
    leading.followers[JOINING].fetched(1, 7, 0, 10, 0.0)
    return leading


def test_a_replica_that_is_being_added_counts_until_its_change_ends() -> None:
    leading = leader_with([OURS, OTHER])
    leading.propose(adding=[JOINING])
    assert leading.high_watermark(10) == 7
    leading.update([OURS, OTHER, JOINING], [OURS], 1, now_s=0.0)  # the controller has removed the other one
    assert leading.high_watermark(10) == 7
    assert not leading.is_alone
    leading.settle()
    assert leading.high_watermark(10) == 10
    assert leading.is_alone


def test_there_is_one_change_in_flight_at_a_time() -> None:
    leading = leader_with([OURS, OTHER])
    leading.propose(removing=[OTHER])
    leading.update([OURS, OTHER, JOINING], [OURS, OTHER], 2, now_s=0.0)  # min.insync.replicas has changed
    assert not leading.may_join(JOINING, 7, {JOINING: 1})
    leading.settle()
    assert leading.may_join(JOINING, 7, {JOINING: 1})
