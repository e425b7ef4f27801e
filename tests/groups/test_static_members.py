"""Static members (KIP-345): they rejoin without a rebalance, and their old member ids are fenced."""

from __future__ import annotations

import pytest

from skylog.errors import ErrorCode
from skylog.groups import GroupState

from .driver import REBALANCE_MS, SESSION_MS, GroupDriver, subscription


@pytest.fixture
def driver() -> GroupDriver:
    return GroupDriver()


def pair(driver: GroupDriver) -> tuple[str, str]:
    """A stable group of two static members: `one`, the leader, and `two`."""
    leader, follower = driver.stable(2, instances=("one", "two"))
    assert driver.group.members[leader].instance_id == "one"
    return leader, follower


def test_a_static_member_needs_no_id_first(driver: GroupDriver) -> None:
    answer = driver.joined(driver.join(instance="one"))
    assert (answer.error, answer.generation) == (ErrorCode.NONE, 1)
    assert answer.member_id.startswith("one-")


def test_a_static_member_that_comes_back_gets_its_assignment_without_a_rebalance(driver: GroupDriver) -> None:
    leader, follower = pair(driver)
    stores = driver.stores
    back = driver.joined(driver.join(instance="two"))
    assert (back.error, back.generation, back.leader, back.members) == (ErrorCode.NONE, 2, leader, ())
    assert back.member_id != follower
    assert driver.stores == stores + 1, "the new id must survive a restart"
    assert driver.synced(driver.sync(back.member_id, instance="two")).assignment == b"1"
    assert driver.heartbeat(leader, instance="one") is ErrorCode.NONE


def test_the_owned_partitions_of_a_static_member_do_not_matter_when_it_rejoins(driver: GroupDriver) -> None:
    leader, follower = pair(driver)
    owning = (("range", subscription("t", owned=b"\0\0\0\1t")),)
    driver.join(follower, instance="two", protocols=owning)
    driver.join(leader, instance="one", protocols=owning)
    driver.sync(leader, instance="one")
    driver.sync(follower, instance="two")
    assert driver.joined(driver.join(instance="two")).error is ErrorCode.NONE
    assert driver.group.state is GroupState.STABLE


def test_a_static_member_that_comes_back_for_other_topics_causes_a_rebalance(driver: GroupDriver) -> None:
    pair(driver)
    assert driver.waits(driver.join(instance="two", protocols=(("range", subscription("t", "u")),)))


def test_the_former_holder_of_an_instance_id_is_fenced_everywhere(driver: GroupDriver) -> None:
    _, old = pair(driver)
    driver.join(instance="two")
    assert driver.heartbeat(old, instance="two") is ErrorCode.FENCED_INSTANCE_ID
    assert driver.commit(old, 2, instance="two") is ErrorCode.FENCED_INSTANCE_ID
    assert driver.synced(driver.sync(old, instance="two")).error is ErrorCode.FENCED_INSTANCE_ID
    assert driver.joined(driver.join(old, instance="two")).error is ErrorCode.FENCED_INSTANCE_ID
    assert driver.leave(old, "two") is ErrorCode.FENCED_INSTANCE_ID
    assert driver.heartbeat(old) is ErrorCode.UNKNOWN_MEMBER_ID
    assert driver.heartbeat(old, instance="three") is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_join_that_waits_is_fenced_when_the_instance_comes_back(driver: GroupDriver) -> None:
    leader, _ = pair(driver)
    waiting = driver.join(leader, instance="one")
    again = driver.join(instance="one")
    assert driver.joined(waiting).error is ErrorCode.FENCED_INSTANCE_ID
    assert driver.waits(again)


def test_a_sync_that_waits_is_fenced_when_the_instance_comes_back(driver: GroupDriver) -> None:
    leader, follower = pair(driver)
    driver.join(leader, instance="one")
    driver.join(follower, instance="two")
    waiting = driver.sync(follower, instance="two")
    driver.join(instance="two")
    assert driver.synced(waiting).error is ErrorCode.FENCED_INSTANCE_ID
    assert driver.group.state is GroupState.PREPARING, "the leader knows the old id only"


def test_a_static_leader_that_rejoins_skips_the_assignment(driver: GroupDriver) -> None:
    pair(driver)
    back = driver.joined(driver.join(instance="one", version=9))
    assert (back.leader, back.skip_assignment, len(back.members)) == (back.member_id, True, 2)


def test_before_version_9_a_static_leader_that_rejoins_does_not_learn_that_it_leads(driver: GroupDriver) -> None:
    old, _ = pair(driver)
    back = driver.joined(driver.join(instance="one", version=8))
    assert (back.leader, back.skip_assignment, back.members) == (old, False, ())
    assert driver.group.leader == back.member_id


def test_a_rebalance_does_not_throw_out_a_static_member_whose_session_runs(driver: GroupDriver) -> None:
    leader, follower = driver.stable(2, instances=("one", "two"), session_ms=2 * REBALANCE_MS)
    asked = driver.join(leader, instance="one", session_ms=2 * REBALANCE_MS)
    driver.pass_ms(REBALANCE_MS)
    assert len(driver.joined(asked).members) == 2
    assert driver.group.leader == leader
    driver.sync(leader, {follower: b"kept"}, instance="one")
    back = driver.joined(driver.join(instance="two", session_ms=2 * REBALANCE_MS))
    assert driver.synced(driver.sync(back.member_id, instance="two")).assignment == b"kept"


def test_a_rebalance_that_no_static_member_comes_back_to_ends_with_their_sessions(driver: GroupDriver) -> None:
    driver.stable(2, instances=("one", "two"), session_ms=3 * REBALANCE_MS)
    driver.run(driver.group.storing_failed(driver.now_ms))
    driver.pass_ms(2 * REBALANCE_MS)
    assert driver.group.state is GroupState.PREPARING
    driver.pass_ms(REBALANCE_MS + 1000)
    assert driver.group.state is GroupState.EMPTY  # type: ignore[comparison-overlap] # it has changed since


def test_a_static_member_that_stays_away_is_out_after_its_session(driver: GroupDriver) -> None:
    leader, _ = pair(driver)
    for _ in range(SESSION_MS // 1000):
        driver.pass_ms(1000)
        driver.heartbeat(leader, instance="one")
    assert driver.heartbeat(leader, instance="one") is ErrorCode.REBALANCE_IN_PROGRESS
    assert list(driver.group.members) == [leader]


def test_a_static_member_is_removed_by_its_instance_id_alone(driver: GroupDriver) -> None:
    leader, follower = pair(driver)
    assert driver.leave(instance="two") is ErrorCode.NONE
    assert list(driver.group.members) == [leader]
    assert driver.leave(instance="two") is ErrorCode.UNKNOWN_MEMBER_ID
    assert driver.heartbeat(follower, instance="two") is ErrorCode.UNKNOWN_MEMBER_ID


def test_an_id_given_to_a_dynamic_member_cannot_be_used_by_a_static_one(driver: GroupDriver) -> None:
    pair(driver)
    pending = driver.joined(driver.join()).member_id
    assert driver.joined(driver.join(pending, instance="three")).error is ErrorCode.UNKNOWN_MEMBER_ID
    assert driver.joined(driver.join(pending, instance="two")).error is ErrorCode.FENCED_INSTANCE_ID
