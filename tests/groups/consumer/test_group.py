"""A consumer group: joining, handing over partitions, leaving, timeouts, static members, subscriptions."""

from __future__ import annotations

from dataclasses import replace

import pytest

from skylog.errors import ErrorCode, KafkaError
from skylog.groups.consumer import ASSIGNORS, Heartbeat, MemberState
from skylog.groups.consumer.member import LEAVE_STATIC_EPOCH
from skylog.groups.consumer.partitions import NONE, overlap, size, union

from .driver import REBALANCE_MS, SESSION_MS, Client, GroupDriver


def test_the_first_member_gets_all_partitions_with_its_first_response() -> None:
    driver = GroupDriver({"t": 3})
    a = driver.join("a")
    assert (a.epoch, a.count) == (1, 3)
    assert driver.group.state.value == "Stable"


def test_a_partition_is_handed_over_only_after_its_owner_has_reported_that_it_gave_it_up() -> None:
    driver = GroupDriver({"t": 4})
    a = driver.join("a")
    b = driver.join("b")
    assert (b.epoch, b.count) == (2, 0)
    before = a
    a = driver.beat(a)  # the response asks for two of the four; the epoch stays
    assert (a.epoch, a.count) == (1, 2)
    b = driver.beat(b)
    assert b.count == 0  # a has not reported yet
    a = driver.beat(a)
    assert (a.epoch, a.count) == (2, 2)
    b = driver.beat(b)
    assert (b.epoch, b.count) == (2, 2)
    assert not overlap(a.owned, b.owned)
    assert union(a.owned, b.owned) == before.owned
    assert driver.group.state.value == "Stable"


def test_a_response_names_the_assignment_only_when_it_has_changed_or_the_request_is_full() -> None:
    driver = GroupDriver()
    driver.join("a")
    plain = Heartbeat("a", 1)
    assert driver.send(plain).assigned is None
    full = Heartbeat("a", 1, None, None, REBALANCE_MS, frozenset({"t"}), None, None, driver.group.targets["a"])
    assert driver.send(full).assigned == driver.group.targets["a"]


def test_a_member_that_leaves_makes_room_at_once() -> None:
    driver = GroupDriver()
    a, b = driver.settle(driver.join("a"), driver.join("b"))
    driver.leave(b)
    a = driver.beat(a)
    assert a.count == 6
    assert list(driver.group.members) == ["a"]


def test_a_member_without_heartbeats_is_removed_after_the_session_timeout() -> None:
    driver = GroupDriver()
    a, b = driver.settle(driver.join("a"), driver.join("b"))
    driver.pass_ms(SESSION_MS - 1)
    a = driver.beat(a)
    driver.pass_ms(1)
    assert list(driver.group.members) == ["a"]
    assert driver.beat(a).count == 6
    assert driver.error(Heartbeat("b", b.epoch)) is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_member_that_is_being_answered_does_not_time_out_but_others_do() -> None:
    driver = GroupDriver()
    driver.settle(driver.join("a"), driver.join("b"))
    member = driver.group.members["a"]
    member.answering = 2
    driver.pass_ms(SESSION_MS)
    assert list(driver.group.members) == ["a"]
    for _ in range(2):
        assert driver.group.next_tick_ms is not None
        assert driver.group.next_tick_ms > driver.now_ms, "nothing can be done before"
        member.answering -= 1
        driver.pass_ms(driver.group.next_tick_ms - driver.now_ms)
    assert not driver.group.members


def test_a_member_that_does_not_revoke_in_time_is_removed() -> None:
    driver = GroupDriver()
    a = driver.join("a")
    b = driver.join("b")
    a = driver.beat(a)
    assert driver.group.members["a"].current.state is MemberState.UNREVOKED_PARTITIONS
    for _ in range(2):
        driver.pass_ms(REBALANCE_MS // 2 - 1)
        driver.beat(a, reports=False)
        b = driver.beat(b)
    driver.pass_ms(2)
    assert list(driver.group.members) == ["b"]
    assert driver.beat(b).count == 6


def test_a_lost_response_is_repeated_for_the_previous_epoch() -> None:
    driver = GroupDriver()
    before = driver.join("a")
    driver.set_topic("t", 8)
    driver.beat(before)  # the response is lost
    again = driver.beat(before, full=True)
    assert (again.epoch, again.count) == (2, 8)


def test_other_epochs_are_fenced() -> None:
    driver = GroupDriver()
    a = driver.join("a")
    driver.settle(a, driver.join("b"))
    assert driver.error(Heartbeat("a", 99)) is ErrorCode.FENCED_MEMBER_EPOCH
    stale = Heartbeat("a", 1, owned=a.owned)  # the previous epoch, but with partitions that it had to give up
    assert driver.error(stale) is ErrorCode.FENCED_MEMBER_EPOCH
    assert driver.error(Heartbeat("x", 2)) is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_fenced_member_rejoins_with_the_same_id_and_gets_its_partitions_back() -> None:
    driver = GroupDriver()
    a, b = driver.settle(driver.join("a"), driver.join("b"))
    again = driver.beat(replace(a, epoch=0, owned={}))
    assert (again.epoch, again.owned) == (a.epoch, a.owned)
    assert driver.beat(b).owned == b.owned
    assert driver.group.epoch == a.epoch


def test_a_member_that_rejoins_has_given_up_what_it_had_to() -> None:
    driver = GroupDriver()
    a = driver.join("a")
    b = driver.join("b")
    a = driver.beat(a)
    assert driver.group.members["a"].current.state is MemberState.UNREVOKED_PARTITIONS
    a = driver.beat(replace(a, epoch=0, owned={}))
    assert (a.epoch, a.count) == (2, 3)
    assert driver.beat(b).count == 3


def test_a_new_member_beyond_the_maximum_is_rejected_and_nothing_changes() -> None:
    driver = GroupDriver(max_size=1)
    driver.join("a")
    epoch = driver.group.epoch
    with pytest.raises(KafkaError) as refused:
        driver.join("b")
    assert refused.value.code is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert driver.group.epoch == epoch
    assert not driver.group.changes


# -- topics and subscriptions


def test_new_partitions_new_topics_and_deleted_topics_raise_the_epoch() -> None:
    driver = GroupDriver({"t": 2})
    a = driver.join("a", topics=frozenset({"t", "u"}))
    assert a.count == 2
    driver.set_topic("t", 5)
    a = driver.beat(a)
    assert (a.epoch, a.count) == (2, 5)
    driver.set_topic("u", 3)
    a = driver.beat(a)
    assert (a.epoch, a.count) == (3, 8)
    driver.delete_topic("t")
    [a] = driver.settle(a)
    assert (a.epoch, a.count) == (4, 3)
    driver.set_topic("other", 3)
    assert driver.beat(a).epoch == 4


def test_a_changed_subscription_moves_partitions() -> None:
    driver = GroupDriver({"t": 2, "u": 2})
    a = driver.join("a")
    a = driver.beat(replace(a, topics=frozenset({"u"})), full=True)
    assert a.count == 0
    [a] = driver.settle(a)
    assert set(a.owned) == {driver.topics["u"].topic_id}


def test_a_pattern_subscribes_to_the_topics_that_match_it_now_and_later() -> None:
    driver = GroupDriver({"logs-a": 2, "metrics": 4, "xlogs-a": 1})
    a = driver.join("a", topics=frozenset(), pattern="logs-.*")
    assert a.count == 2
    driver.set_topic("logs-b", 3)
    a = driver.beat(a)
    assert (a.epoch, a.count) == (2, 5)
    driver.leave(a)
    assert driver.group.patterns == {}


def test_two_members_with_different_patterns_share_the_common_topics() -> None:
    driver = GroupDriver({"ab": 4, "a": 2, "b": 2})
    first, second = driver.settle(
        driver.join("1", topics=frozenset(), pattern="a.?b?"), driver.join("2", topics=frozenset(), pattern="a?b")
    )
    assert first.count == second.count == 4
    assert size(union(first.owned, second.owned)) == 8


def test_the_assignor_that_most_members_want_is_used() -> None:
    driver = GroupDriver({"t": 4})
    assert driver.group.assignor == "uniform"
    driver.join("a", assignor="range")
    assert driver.group.assignor == "range"


# -- static members


def test_a_static_member_that_returns_gets_its_partitions_without_a_rebalance() -> None:
    driver = GroupDriver()
    a, b = driver.settle(driver.join("a", instance_id="one"), driver.join("b"))
    driver.leave(a, LEAVE_STATIC_EPOCH)
    again = driver.join("a2", instance_id="one")
    assert (again.epoch, again.owned) == (a.epoch, a.owned)
    assert driver.beat(b).owned == b.owned
    assert driver.error(Heartbeat("a", a.epoch)) is ErrorCode.UNKNOWN_MEMBER_ID
    assert driver.error(Heartbeat("a", a.epoch, "one")) is ErrorCode.FENCED_INSTANCE_ID


def test_a_static_member_that_returns_while_an_assignment_is_computed_is_assigned_again() -> None:
    driver = GroupDriver()
    a, b = driver.settle(driver.join("a", instance_id="one"), driver.join("b"))
    driver.leave(a, LEAVE_STATIC_EPOCH)
    driver.set_topic("t", 8)
    group, epoch = driver.group, driver.group.epoch + 1
    group.compare_topics(driver.topics)
    given = group.assignment_input(driver.topics)
    assert given is not None
    join = Heartbeat("a2", 0, "one", None, REBALANCE_MS, frozenset({"t"}), None, None, NONE)
    group.update(join, driver.topics, driver.now_ms)
    group.set_target(epoch, ASSIGNORS["uniform"](given))  # it does not know the new id
    driver.assign()
    response = group.respond(join, driver.now_ms)
    again = replace(a, member_id="a2", epoch=response.epoch, owned=response.assigned or NONE)
    again, b = driver.settle(again, b)
    assert (again.count, b.count) == (4, 4)


def test_a_late_heartbeat_does_not_bring_a_static_member_back_that_has_left() -> None:
    driver = GroupDriver()
    a = driver.join("a", instance_id="one")
    driver.leave(a, LEAVE_STATIC_EPOCH)
    late = Heartbeat("a", a.epoch, "one", None, REBALANCE_MS, frozenset({"t"}), None, None, a.owned)
    assert driver.error(late) is ErrorCode.FENCED_MEMBER_EPOCH
    assert driver.group.members["a"].has_left
    assert driver.join("a2", instance_id="one").owned == a.owned


def test_a_static_member_that_does_not_return_is_removed_after_its_session() -> None:
    driver = GroupDriver()
    a, b = driver.settle(driver.join("a", instance_id="one"), driver.join("b"))
    driver.leave(a, LEAVE_STATIC_EPOCH)
    driver.pass_ms(SESSION_MS - 1)
    b = driver.beat(b)
    assert b.count == 3
    driver.pass_ms(1)
    assert driver.beat(b).count == 6


def test_a_member_that_rejoins_with_an_instance_id_stays_the_same_member() -> None:
    driver = GroupDriver({"t": 4}, max_size=2)
    a, b = driver.settle(driver.join("a"), driver.join("b"))
    a, b = driver.settle(driver.join("a", instance_id="one"), b)
    assert list(driver.group.members) == ["a", "b"]
    assert (a.count, b.count) == (2, 2)
    driver.leave(a)
    (b,) = driver.settle(b)
    assert b.count == 4


def test_an_instance_id_that_its_member_has_changed_is_free() -> None:
    driver = GroupDriver({"t": 4})
    driver.join("a", instance_id="one")
    a = driver.join("a", instance_id="two")
    a, b = driver.settle(a, driver.join("b", instance_id="one"))
    assert (a.count, b.count) == (2, 2)


def test_a_member_that_takes_the_place_of_a_static_one_gives_up_its_own() -> None:
    driver = GroupDriver({"t": 4})
    a, _ = driver.settle(driver.join("a", instance_id="one"), driver.join("b"))
    driver.leave(a, LEAVE_STATIC_EPOCH)
    (b,) = driver.settle(driver.join("b", instance_id="one"))
    assert list(driver.group.members) == ["b"]
    assert b.count == 4


def test_an_instance_id_in_use_is_refused() -> None:
    driver = GroupDriver()
    driver.join("a", instance_id="one")
    join = Heartbeat("b", 0, "one", None, REBALANCE_MS, frozenset({"t"}), None, None, NONE)
    assert driver.error(join) is ErrorCode.UNRELEASED_INSTANCE_ID
    assert driver.error(Heartbeat("x", 1, "two")) is ErrorCode.UNKNOWN_MEMBER_ID


# -- offsets and restarts


def test_only_a_member_with_its_current_epoch_may_commit_and_fetch() -> None:
    driver = GroupDriver()
    group = driver.group
    group.check_commit("", -1, knows_epochs=True)
    driver.join("a")
    group.check_commit("a", 1, knows_epochs=True)
    group.check_fetch(None, -1)
    group.check_fetch("a", 1)

    def code(epoch: int, member_id: str = "a", *, knows_epochs: bool = True) -> ErrorCode:
        with pytest.raises(KafkaError) as refused:
            group.check_commit(member_id, epoch, knows_epochs=knows_epochs)
        return refused.value.code

    assert code(0) is ErrorCode.STALE_MEMBER_EPOCH
    assert code(1, "x") is ErrorCode.UNKNOWN_MEMBER_ID
    assert code(-1, "") is ErrorCode.UNKNOWN_MEMBER_ID
    assert code(1, knows_epochs=False) is ErrorCode.UNSUPPORTED_VERSION
    with pytest.raises(KafkaError) as refused:
        group.check_fetch("a", 2)
    assert refused.value.code is ErrorCode.STALE_MEMBER_EPOCH


def test_a_group_goes_on_where_it_was_after_a_restart() -> None:
    driver = GroupDriver({"t": 6, "logs": 2})
    a = driver.join("a", instance_id="one", assignor="range")
    b = driver.join("b", topics=frozenset(), pattern="lo.*|t")
    a = driver.beat(a)
    before = driver.group
    driver.restart()
    after = driver.group
    assert after is not before
    assert {key: (each.metadata, each.current) for key, each in after.members.items()} == {
        key: (each.metadata, each.current) for key, each in before.members.items()
    }
    assert (after.epoch, after.target_epoch, after.targets) == (before.epoch, before.target_epoch, before.targets)
    assert (after.patterns, after.metadata_hash) == (before.patterns, before.metadata_hash)
    a, b = driver.settle(a, b)
    assert (a.epoch, b.epoch) == (2, 2)
    assert a.count + b.count == 8


def test_what_changed_while_the_group_was_not_loaded_is_noticed() -> None:
    driver = GroupDriver({"t": 2})
    a = driver.join("a")
    driver.set_topic("t", 4)
    driver.restart()
    assert driver.beat(a).count == 4


def test_a_group_without_members_is_gone_after_its_tombstones() -> None:
    driver = GroupDriver()
    driver.leave(driver.join("a"))
    driver.log += driver.groups.deletion_records("g")
    driver.restart()
    assert driver.group.epoch == 0
    assert driver.group.members == {}


# -- racks


def rack_driver(*racks: str, partitions: int = 6) -> GroupDriver:
    """A group of a topic whose partitions are on brokers 1, 2, … in turn, which are in these racks."""
    driver = GroupDriver()
    driver.racks.update(enumerate(racks, 1))
    driver.set_topic("t", partitions, *driver.racks)
    return driver


def numbers(client: Client) -> set[int]:
    return {number for found in client.owned.values() for number in found}


@pytest.mark.parametrize("assignor", ["uniform", "range"])
def test_members_get_the_partitions_of_their_rack(assignor: str) -> None:
    driver = rack_driver("x", "y")
    a, b = driver.settle(*(driver.join(each, rack_id=each, assignor=assignor) for each in ("y", "x")))
    assert (numbers(a), numbers(b)) == ({1, 3, 5}, {0, 2, 4})


def test_racks_of_brokers_make_no_difference_without_a_rack_of_a_member() -> None:
    driver = rack_driver("x", "y")
    a, b = driver.settle(driver.join("a"), driver.join("b"))
    driver.racks[1] = "z"
    driver.set_topic("t", 6, 1, 2)
    assert driver.settle(a, b) == [a, b]
    driver.set_topic("t", 6, 2, 1)
    assert driver.settle(a, b) == [a, b]


def test_replicas_that_move_to_another_rack_take_their_reader_with_them() -> None:
    driver = rack_driver("x", "y")
    a, b = driver.settle(driver.join("a", rack_id="x"), driver.join("b", rack_id="y"))
    driver.set_topic("t", 6, 2, 1)
    moved = driver.settle(a, b)
    assert [numbers(each) for each in moved] == [numbers(b), numbers(a)]


def test_a_static_member_that_returns_in_another_rack_is_assigned_again() -> None:
    driver = rack_driver("x", "y")
    a, b = driver.settle(driver.join("a", rack_id="x", instance_id="one"), driver.join("b", rack_id="x"))
    driver.leave(a, LEAVE_STATIC_EPOCH)
    a, b = driver.settle(driver.join("a2", rack_id="y", instance_id="one"), b)
    assert (numbers(a), numbers(b)) == ({1, 3, 5}, {0, 2, 4})


def test_a_restart_changes_nothing_for_a_group_with_racks() -> None:
    driver = rack_driver("x", "y")
    clients = driver.settle(driver.join("a", rack_id="x"), driver.join("b", rack_id="y"))
    driver.restart()
    assert driver.settle(*clients) == clients
