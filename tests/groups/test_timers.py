"""Ticks of groups: never too late, and none if nothing can expire."""

from __future__ import annotations

from skylog.groups import Group, GroupTimers

from .driver import SESSION_MS, GroupDriver


def test_groups_are_due_in_the_order_of_their_times() -> None:
    timers = GroupTimers()
    for group_id, at_ms in (("late", 300), ("early", 100), ("middle", 200), ("never", None)):
        timers.schedule(group_id, at_ms)
    assert timers.take_due(99) == []
    assert timers.take_due(250) == ["early", "middle"]
    assert timers.take_due(250) == []
    assert timers.take_due(1000) == ["late"]
    assert len(timers) == 0


def test_an_earlier_time_counts_and_a_later_one_does_not() -> None:
    timers = GroupTimers()
    for at_ms in (200, 100, 300, 100):
        timers.schedule("g", at_ms)
    assert timers.take_due(100) == ["g"]
    assert timers.take_due(1000) == [], "it is due once, until it is scheduled again"


def test_a_group_in_which_nothing_can_expire_needs_no_tick() -> None:
    assert Group("g").next_tick_ms is None
    driver = GroupDriver()
    driver.group.loaded(driver.now_ms)
    driver.pass_ms(100)
    assert driver.group.next_tick_ms is None


def test_a_stable_group_needs_its_next_tick_when_a_session_may_expire() -> None:
    driver = GroupDriver()
    member_id, _ = driver.join_known()
    driver.sync(member_id, {member_id: b"mine"})
    driver.pass_ms(100)
    assert driver.group.next_tick_ms == driver.now_ms - 100 + SESSION_MS


def test_a_static_member_that_is_back_with_a_shorter_session_is_missed_in_time() -> None:
    driver = GroupDriver()
    joined = driver.joined(driver.join(instance="i", session_ms=60_000))
    driver.sync(joined.member_id, {joined.member_id: b"mine"}, instance="i")
    driver.pass_ms(1000)
    driver.join(instance="i", session_ms=2000)
    driver.pass_ms(2000)
    assert not driver.group.members


def test_while_a_group_is_stored_no_tick_is_needed_for_sessions() -> None:
    driver = GroupDriver()
    member_id, _ = driver.join_known()
    driver.sync(member_id, {member_id: b"mine"})
    driver.group.storing()
    driver.pass_ms(2 * SESSION_MS)
    assert driver.group.members
    assert driver.group.next_tick_ms is None
    driver.group.stored(driver.now_ms)
    driver.pass_ms(SESSION_MS)
    assert not driver.group.members
