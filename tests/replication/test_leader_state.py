"""What a leader knows of its followers: what is committed, who may join, and who lags."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from skylog.replication import FollowerProgress, LeaderState

OURS, SECOND, THIRD = 1, 2, 3
LAG_S = 10.0


def leader(*in_sync: int, min_in_sync: int = 1, epoch_start: int = 0) -> LeaderState:
    state = LeaderState(OURS, epoch_start)
    state.update((OURS, SECOND, THIRD), in_sync, min_in_sync, now_s=0.0)
    return state


def fetch(state: LeaderState, node_id: int, offset: int, end_offset: int = 10, now_s: float = 0.0) -> None:
    state.followers[node_id].fetched(1, offset, 0, end_offset, now_s)


# -- the high watermark


def test_the_watermark_is_the_lowest_end_of_the_replicas_in_sync() -> None:
    state = leader(OURS, SECOND, THIRD)
    fetch(state, SECOND, 7)
    fetch(state, THIRD, 5)
    assert state.high_watermark(10) == 5
    assert state.high_watermark(4) == 4
    state.update((OURS, SECOND, THIRD), (OURS, SECOND), 1, 0.0)
    assert state.high_watermark(10) == 7


def test_nothing_is_known_before_every_replica_in_sync_has_fetched_in_this_epoch() -> None:
    state = leader(OURS, SECOND, THIRD)
    fetch(state, SECOND, 7)
    assert state.high_watermark(10) == -1


def test_a_leader_that_is_alone_in_sync_commits_what_it_appends() -> None:
    state = leader(OURS)
    assert state.is_alone
    assert state.high_watermark(10) == 10


def test_nothing_is_committed_while_too_few_replicas_are_in_sync() -> None:
    state = leader(OURS, min_in_sync=2)
    assert not state.is_alone
    assert not state.has_enough
    assert state.high_watermark(10) == -1
    state.propose(adding=[SECOND])
    assert not state.has_enough, "a replica that is being added counts when the store has it"


def test_a_replica_that_is_being_removed_counts_until_it_is_removed() -> None:
    state = leader(OURS, SECOND)
    fetch(state, SECOND, 3)
    state.propose(removing=[SECOND])
    assert state.high_watermark(10) == 3
    state.update((OURS, SECOND, THIRD), (OURS,), 1, 0.0)
    state.settle()
    assert state.high_watermark(10) == 10


def test_a_replica_that_is_moved_away_does_not_count_any_more() -> None:
    state = leader(OURS, SECOND, THIRD)
    fetch(state, SECOND, 7)
    fetch(state, THIRD, 5)
    state.update((OURS, SECOND), (OURS, SECOND), 1, 0.0)
    assert state.high_watermark(10) == 7
    assert set(state.followers) == {SECOND}
    state.update((OURS, SECOND, THIRD), (OURS, SECOND), 1, 0.0)
    assert state.followers[THIRD].end_offset == -1, "what it had is forgotten"


@given(
    offsets=st.tuples(st.integers(-1, 10), st.integers(-1, 10)),
    in_sync=st.sets(st.sampled_from((SECOND, THIRD))),
    adding=st.sets(st.sampled_from((SECOND, THIRD))),
    removing=st.sets(st.sampled_from((SECOND, THIRD))),
    min_in_sync=st.integers(1, 3),
    end_offset=st.integers(0, 12),
)
def test_what_is_committed_is_on_every_replica_that_may_be_in_sync(
    offsets: tuple[int, int],
    in_sync: set[int],
    adding: set[int],
    removing: set[int],
    min_in_sync: int,
    end_offset: int,
) -> None:
    state = leader(OURS, *in_sync, min_in_sync=min_in_sync)
    ends = dict(zip((SECOND, THIRD), offsets, strict=True))
    for node_id, offset in ends.items():
        if offset >= 0:
            fetch(state, node_id, offset, end_offset)
    state.propose(adding, removing)
    watermark = state.high_watermark(end_offset)
    assert watermark <= end_offset
    assert all(watermark <= ends[node_id] for node_id in in_sync | adding)
    if len(in_sync) + 1 < min_in_sync:
        assert watermark == -1
    assert state.is_alone == (not in_sync | adding and len(in_sync) + 1 >= min_in_sync)
    if state.is_alone:
        assert watermark == end_offset


# -- joining


def test_a_follower_may_join_when_it_has_reached_the_offset_and_its_process_is_registered() -> None:
    state = leader(OURS, SECOND)
    fetch(state, THIRD, 5)
    assert state.may_join(THIRD, 5, {THIRD: 1})
    assert not state.may_join(THIRD, 6, {THIRD: 1})
    assert not state.may_join(THIRD, 5, {THIRD: 2}), "KAFKA-13916: a former incarnation has fetched"
    assert not state.may_join(THIRD, 5, {})
    assert not state.may_join(SECOND, -1, {SECOND: 0}), "it is in sync already"


def test_a_follower_that_has_not_fetched_in_this_epoch_may_not_join() -> None:
    state = leader(OURS)
    assert not state.may_join(SECOND, 0, {SECOND: 0})


# -- lagging


def test_a_follower_that_does_not_fetch_lags_after_the_time_that_it_has() -> None:
    state = leader(OURS, SECOND)
    fetch(state, SECOND, 5, end_offset=10, now_s=1.0)
    assert state.lagging(10, LAG_S, LAG_S, {}) == []
    assert state.lagging(10, LAG_S + 0.1, LAG_S, {}) == [SECOND]


def test_a_follower_that_fetches_but_does_not_catch_up_lags() -> None:
    state = leader(OURS, SECOND)
    for second in range(12):
        fetch(state, SECOND, second, end_offset=100 + 10 * second, now_s=float(second))
    assert state.lagging(300, 11.0, LAG_S, {SECOND: 11.0}) == [SECOND]


def test_a_follower_is_caught_up_that_always_has_what_was_the_end_at_its_previous_fetch() -> None:
    state = leader(OURS, SECOND)
    for second in range(100):
        fetch(state, SECOND, 10 * second, end_offset=10 * (second + 1), now_s=float(second))
    assert state.lagging(2000, 100.0, 2.5, {}) == []


def test_a_follower_at_the_end_does_not_lag_while_its_broker_fetches_anything() -> None:
    state = leader(OURS, SECOND)
    fetch(state, SECOND, 10, end_offset=10, now_s=0.0)
    assert state.lagging(10, 1000.0, LAG_S, {SECOND: 995.0}) == []
    assert state.lagging(10, 1006.0, LAG_S, {SECOND: 995.0}) == [SECOND]


def test_the_first_append_after_a_long_silence_does_not_make_a_follower_late() -> None:
    """The follower of an idle partition sends no row for it. It is woken by the append, and fetches in a moment."""
    state = leader(OURS, SECOND)
    fetch(state, SECOND, 10, end_offset=10, now_s=0.0)
    for second in range(1, 1000):
        assert state.lagging(10, float(second), LAG_S, {SECOND: second - 0.5}) == []
    assert state.lagging(11, 1000.0, LAG_S, {SECOND: 999.9}) == []
    assert state.lagging(11, 1010.0, LAG_S, {SECOND: 1009.9}) == [SECOND]


def test_a_follower_is_silent_that_has_neither_fetched_nor_been_caught_up_for_the_time_that_it_has() -> None:
    state = leader(OURS)
    fetch(state, SECOND, 10, end_offset=10, now_s=1.0)
    assert not state.is_silent(SECOND, 1.0 + LAG_S, LAG_S)
    assert state.is_silent(SECOND, 1.1 + LAG_S, LAG_S)
    state.lagging(10, 1.1 + LAG_S, LAG_S, {SECOND: 5.0})  # its broker has fetched from other partitions
    assert not state.is_silent(SECOND, 1.1 + LAG_S, LAG_S)
    fetch(state, SECOND, 10, end_offset=50, now_s=30.0)
    assert not state.is_silent(SECOND, 30.0 + LAG_S, LAG_S)


def test_nobody_is_removed_while_a_change_is_in_flight() -> None:
    state = leader(OURS, SECOND)
    state.propose(adding=[THIRD])
    assert state.lagging(10, 1000.0, LAG_S, {}) == []
    state.settle()
    assert state.lagging(10, 1000.0, LAG_S, {}) == [SECOND]


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5), st.integers(0, 5)), min_size=1, max_size=20))
def test_a_follower_is_caught_up_as_of_a_time_at_which_it_had_everything(
    steps: list[tuple[int, int, int]],
) -> None:
    """`caught_up_s` is the latest fetch, or a time before at which the end was not beyond what the follower has."""
    progress = FollowerProgress(0.0)
    end_offset = offset = 0
    ends = [(0.0, 0)]
    for now, (appended, copied, _) in enumerate(steps, 1):
        end_offset += appended
        offset = min(offset + copied, end_offset)
        progress.fetched(1, offset, 0, end_offset, float(now))
        ends.append((float(now), end_offset))
        known = [time for time, end in ends if end <= offset]
        assert progress.caught_up_s <= max(known, default=0.0)
        if offset == end_offset:
            assert progress.caught_up_s == now


def test_progress_is_that_of_the_last_fetch() -> None:
    progress = FollowerProgress(5.0)
    assert (progress.end_offset, progress.caught_up_s) == (-1, 5.0)
    progress.fetched(3, 7, 2, 9, 6.0)
    assert (progress.incarnation, progress.end_offset, progress.log_start_offset) == (3, 7, 2)
    assert (progress.fetched_s, progress.leader_end_at_fetch, progress.caught_up_s) == (6.0, 9, 5.0)
    progress.fetched(4, 1, 0, 9, 7.0)
    assert (progress.incarnation, progress.end_offset) == (4, 1), "it has started again, with less"
