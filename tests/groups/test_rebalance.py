"""The rules of a rebalance, one by one: which members it waits for, their responses, and when it ends."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest

from skylog.errors import ErrorCode
from skylog.groups import Group, GroupState, JoinRequest, JoinResponse
from skylog.groups.member import Member

from .driver import RANGE, REBALANCE_MS, SESSION_MS, GroupDriver, subscription


@pytest.fixture
def driver() -> GroupDriver:
    return GroupDriver()


def test_a_new_member_is_first_given_an_id_to_join_with(driver: GroupDriver) -> None:
    answer = driver.joined(driver.join())
    assert answer.error is ErrorCode.MEMBER_ID_REQUIRED
    assert answer.member_id.startswith("client-")
    assert driver.group.members == {}


def test_before_version_4_a_new_member_joins_immediately(driver: GroupDriver) -> None:
    answer = driver.joined(driver.join(version=3))
    assert (answer.error, answer.generation, answer.leader) == (ErrorCode.NONE, 1, answer.member_id)


def test_the_first_member_leads_and_receives_all_members(driver: GroupDriver) -> None:
    member_id, asked = driver.join_known()
    answer = driver.joined(asked)
    assert (answer.generation, answer.leader, answer.protocol) == (1, member_id, "range")
    assert answer.members == ((member_id, None, RANGE[0][1]),)


def test_a_second_member_waits_until_the_first_has_joined_again(driver: GroupDriver) -> None:
    (first,) = driver.stable(1)
    second, asked = driver.join_known()
    assert driver.waits(asked)
    assert driver.heartbeat(first) is ErrorCode.REBALANCE_IN_PROGRESS
    again = driver.join(first)
    assert driver.joined(again).generation == driver.joined(asked).generation == 2
    assert len(driver.joined(again).members) == 2
    assert driver.joined(asked).members == ()
    assert driver.joined(asked).leader == first
    assert second != first


def test_members_receive_the_leaders_assignment_after_it_is_stored(driver: GroupDriver) -> None:
    leader, follower = driver.stable(2)
    driver.join(leader)
    driver.join(follower)
    stores = driver.stores
    early = driver.sync(follower)
    assert driver.waits(early)
    late = driver.sync(leader, {leader: b"L", follower: b"F"})
    assert (driver.synced(late).assignment, driver.synced(early).assignment) == (b"L", b"F")
    assert driver.stores == stores + 1


def test_a_member_that_the_leader_forgot_gets_an_empty_assignment(driver: GroupDriver) -> None:
    leader, follower = driver.stable(2)
    driver.join(leader)
    driver.join(follower)
    driver.sync(leader, {leader: b"all"})
    assert driver.synced(driver.sync(follower)).assignment == b""


def test_a_member_that_does_not_join_again_is_out_after_the_rebalance_timeout(driver: GroupDriver) -> None:
    leader, follower = driver.stable(2)
    asked = driver.join(leader)
    for _ in range(REBALANCE_MS // 1000 - 1):
        driver.pass_ms(1000)
        assert driver.heartbeat(follower) is ErrorCode.REBALANCE_IN_PROGRESS
        assert driver.waits(asked)
    driver.pass_ms(1000)
    assert driver.joined(asked).error is ErrorCode.NONE
    assert driver.heartbeat(follower) is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_silent_member_ends_with_its_session_and_the_others_rebalance(driver: GroupDriver) -> None:
    leader, follower = driver.stable(2)
    for _ in range(SESSION_MS // 1000):
        driver.pass_ms(1000)
        driver.heartbeat(leader)
    assert driver.heartbeat(leader) is ErrorCode.REBALANCE_IN_PROGRESS
    assert driver.heartbeat(follower) is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_member_that_waits_for_its_join_does_not_expire(driver: GroupDriver) -> None:
    leader, follower = driver.stable(2)
    asked = driver.join(leader)
    for _ in range(3 * SESSION_MS // 1000):
        driver.pass_ms(1000)
        driver.heartbeat(follower)
    assert driver.waits(asked)
    driver.join(follower)
    assert driver.joined(asked).error is ErrorCode.NONE


def test_a_member_that_waits_for_its_assignment_does_not_expire(driver: GroupDriver) -> None:
    leader, follower = driver.stable(2)
    driver.join(leader)
    driver.join(follower)
    asked = driver.sync(follower)
    for _ in range(2 * SESSION_MS // 1000):
        driver.pass_ms(1000)
        driver.heartbeat(leader)
    assert driver.waits(asked)
    driver.sync(leader, {follower: b"F"})
    assert driver.synced(asked).assignment == b"F"


def test_a_leader_that_dies_before_its_sync_is_replaced(driver: GroupDriver) -> None:
    leader, follower = driver.stable(2)
    driver.join(leader)
    driver.join(follower)
    asked = driver.sync(follower)
    driver.pass_ms(SESSION_MS)
    assert driver.synced(asked).error is ErrorCode.REBALANCE_IN_PROGRESS
    answer = driver.joined(driver.join(follower))
    assert answer.leader == follower
    assert [member_id for member_id, _, _ in answer.members] == [follower]
    assert leader not in driver.group.members


def test_a_member_that_never_syncs_is_out_after_the_rebalance_timeout_though_the_group_is_stable(
    driver: GroupDriver,
) -> None:
    leader, follower = driver.stable(2)
    driver.join(leader)
    driver.join(follower)
    driver.sync(leader)
    for _ in range(REBALANCE_MS // 1000):
        driver.pass_ms(1000)
        driver.heartbeat(leader)
        driver.heartbeat(follower)
    assert driver.heartbeat(follower) is ErrorCode.UNKNOWN_MEMBER_ID
    assert driver.heartbeat(leader) is ErrorCode.REBALANCE_IN_PROGRESS


def test_a_rebalance_waits_only_seconds_for_an_id_that_was_given_out(driver: GroupDriver) -> None:
    (leader,) = driver.stable(1)
    pending = driver.joined(driver.join(session_ms=SESSION_MS)).member_id
    asked = driver.join(leader)
    assert driver.waits(asked)
    driver.pass_ms(3000)
    assert driver.joined(asked).error is ErrorCode.NONE
    late = driver.join(pending)
    assert driver.waits(late)
    driver.join(leader)
    assert driver.joined(late).error is ErrorCode.NONE


def test_an_id_that_was_given_out_is_good_for_a_session(driver: GroupDriver) -> None:
    pending = driver.joined(driver.join()).member_id
    driver.pass_ms(SESSION_MS)
    assert driver.joined(driver.join(pending)).error is ErrorCode.UNKNOWN_MEMBER_ID


def test_leaving_with_an_id_that_was_only_given_out_ends_the_wait_for_it(driver: GroupDriver) -> None:
    (leader,) = driver.stable(1)
    pending = driver.joined(driver.join()).member_id
    asked = driver.join(leader)
    assert driver.leave(pending) is ErrorCode.NONE
    assert driver.joined(asked).error is ErrorCode.NONE


def test_the_join_of_a_new_member_does_not_wait_for_ever(driver: GroupDriver) -> None:
    """Its client may have disconnected, and joined again with other ids, any number of times."""
    (leader,) = driver.stable(1, rebalance_ms=3_600_000)
    asked = driver.join(version=3)
    for _ in range(300):
        assert driver.waits(asked)
        driver.pass_ms(1000, step_ms=500)
        driver.heartbeat(leader)
    assert driver.joined(asked).error is ErrorCode.UNKNOWN_MEMBER_ID
    assert list(driver.group.members) == [leader]


def test_a_join_repeated_on_another_connection_takes_the_place_of_the_first(driver: GroupDriver) -> None:
    leader, follower = driver.stable(2)
    lost = driver.join(leader)
    again = driver.join(leader)
    assert driver.joined(lost).error is ErrorCode.REBALANCE_IN_PROGRESS
    driver.join(follower)
    assert driver.joined(again).error is ErrorCode.NONE


def test_a_follower_that_lost_its_response_gets_it_again_without_a_rebalance(driver: GroupDriver) -> None:
    _, follower = driver.stable(2)
    answer = driver.joined(driver.join(follower))
    assert (answer.generation, answer.members) == (2, ())
    assert driver.group.state is GroupState.STABLE


def test_a_follower_with_a_new_subscription_causes_a_rebalance(driver: GroupDriver) -> None:
    _, follower = driver.stable(2)
    assert driver.waits(driver.join(follower, protocols=(("range", subscription("t", "u")),)))
    assert driver.group.state is GroupState.PREPARING


def test_the_leader_causes_a_rebalance_by_joining_again(driver: GroupDriver) -> None:
    leader, _ = driver.stable(2)
    assert driver.waits(driver.join(leader))


def test_syncs_that_wait_are_sent_back_to_join_when_another_member_comes(driver: GroupDriver) -> None:
    leader, follower = driver.stable(2)
    driver.join(leader)
    driver.join(follower)
    asked = driver.sync(follower)
    driver.join_known()
    assert driver.synced(asked).error is ErrorCode.REBALANCE_IN_PROGRESS


def test_leaving_starts_a_rebalance_of_the_rest_and_the_last_leaves_an_empty_group(driver: GroupDriver) -> None:
    leader, follower = driver.stable(2)
    assert driver.leave(leader) is ErrorCode.NONE
    assert driver.heartbeat(follower) is ErrorCode.REBALANCE_IN_PROGRESS
    generation, stores = driver.group.generation, driver.stores
    assert driver.leave(follower) is ErrorCode.NONE
    assert driver.group.state is GroupState.EMPTY
    assert driver.group.generation == generation + 1
    assert driver.stores == stores + 1


def test_an_unknown_member_and_an_old_generation_get_different_errors(driver: GroupDriver) -> None:
    leader, _ = driver.stable(2)
    assert driver.heartbeat("stranger") is ErrorCode.UNKNOWN_MEMBER_ID
    assert driver.heartbeat(leader, generation=1) is ErrorCode.ILLEGAL_GENERATION
    assert driver.synced(driver.sync("stranger")).error is ErrorCode.UNKNOWN_MEMBER_ID
    assert driver.synced(driver.sync(leader, generation=1)).error is ErrorCode.ILLEGAL_GENERATION
    assert driver.leave("stranger") is ErrorCode.UNKNOWN_MEMBER_ID


def test_the_protocol_is_one_that_all_support_and_most_prefer(driver: GroupDriver) -> None:
    both = (("roundrobin", b"r"), ("range", b"a"))
    (first,) = driver.stable(1, protocols=both)
    _, second = driver.join_known(protocols=(("sticky", b"s"), ("range", b"b"), ("roundrobin", b"q")))
    _, third = driver.join_known(protocols=(("range", b"c"), ("roundrobin", b"p")))
    answer = driver.joined(driver.join(first, protocols=both))
    assert answer.protocol == driver.joined(second).protocol == driver.joined(third).protocol == "range"
    assert [metadata for _, _, metadata in answer.members] == [b"a", b"b", b"c"]


def test_a_member_without_a_common_protocol_is_refused(driver: GroupDriver) -> None:
    (leader,) = driver.stable(1)
    refused = (
        driver.join(protocols=(("sticky", b""),)),
        driver.join(protocols=()),
        driver.join(protocol_type=""),
        driver.join(protocol_type="connect"),
        driver.join(leader, protocol_type="connect"),
    )
    assert {driver.joined(asked).error for asked in refused} == {ErrorCode.INCONSISTENT_GROUP_PROTOCOL}
    assert driver.heartbeat(leader) is ErrorCode.NONE


def test_a_sync_that_names_another_protocol_is_refused(driver: GroupDriver) -> None:
    leader, _ = driver.stable(2)
    assert driver.synced(driver.sync(leader, protocol="sticky")).error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert driver.synced(driver.sync(leader, protocol_type="connect")).error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert driver.synced(driver.sync(leader, protocol_type="consumer", protocol="range")).error is ErrorCode.NONE


def test_a_full_group_refuses_new_members_and_keeps_its_own() -> None:
    driver = GroupDriver(max_size=2)
    leader, follower = driver.stable(2)
    assert driver.joined(driver.join()).error is ErrorCode.GROUP_MAX_SIZE_REACHED
    driver.join(leader)
    driver.join(follower)
    assert driver.group.state is GroupState.COMPLETING


def test_ids_given_out_take_no_place_in_a_group_and_the_last_to_come_is_refused() -> None:
    driver = GroupDriver(max_size=1)
    first = driver.joined(driver.join()).member_id
    second = driver.joined(driver.join()).member_id
    asked = driver.join(first)
    assert driver.joined(driver.join(second)).error is ErrorCode.GROUP_MAX_SIZE_REACHED
    driver.pass_ms(100)
    assert driver.joined(asked).error is ErrorCode.NONE


def test_an_empty_group_waits_the_initial_delay_for_more_members() -> None:
    driver = GroupDriver(initial_delay_ms=3000)
    _, first = driver.join_known()
    driver.pass_ms(2000)
    _, second = driver.join_known()
    driver.pass_ms(2000)
    assert driver.waits(first)
    driver.pass_ms(1000)
    assert driver.joined(first).generation == driver.joined(second).generation == 1


def test_a_commit_needs_a_member_of_this_generation(driver: GroupDriver) -> None:
    assert driver.commit() is ErrorCode.NONE
    leader, follower = driver.stable(2)
    assert driver.commit(leader, 2) is ErrorCode.NONE
    assert driver.commit() is ErrorCode.UNKNOWN_MEMBER_ID
    assert driver.commit("stranger", 2) is ErrorCode.UNKNOWN_MEMBER_ID
    assert driver.commit(leader, 1) is ErrorCode.ILLEGAL_GENERATION
    driver.join(leader)
    assert driver.commit(follower, 2) is ErrorCode.NONE, "messages read before a rebalance may still be committed"
    driver.join(follower)
    assert driver.commit(leader, 3) is ErrorCode.REBALANCE_IN_PROGRESS


def test_a_commit_is_a_sign_of_life(driver: GroupDriver) -> None:
    (leader,) = driver.stable(1)
    for _ in range(3):
        driver.pass_ms(SESSION_MS - 1000)
        assert driver.commit(leader, 1) is ErrorCode.NONE


def test_no_session_ends_while_the_group_is_being_stored(driver: GroupDriver) -> None:
    leader, follower = driver.stable(2)
    driver.group.storing()
    driver.pass_ms(3 * SESSION_MS)
    driver.group.stored(driver.now_ms)
    driver.pass_ms(SESSION_MS - 1000)
    assert driver.heartbeat(leader) is driver.heartbeat(follower) is ErrorCode.NONE


def test_all_members_rejoin_after_a_state_could_not_be_stored(driver: GroupDriver) -> None:
    leader, follower = driver.stable(2)
    driver.run(driver.group.storing_failed(driver.now_ms))
    assert driver.heartbeat(leader) is driver.heartbeat(follower) is ErrorCode.REBALANCE_IN_PROGRESS


def test_requests_to_a_group_that_is_being_deleted_can_be_retried(driver: GroupDriver) -> None:
    driver.group.begin_deletion()
    assert driver.joined(driver.join()).error is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert driver.commit() is ErrorCode.COORDINATOR_NOT_AVAILABLE
    driver.group.cancel_deletion()
    assert driver.commit() is ErrorCode.NONE


def test_a_transition_that_is_not_in_the_table_is_refused(driver: GroupDriver) -> None:
    driver.stable(1)
    with pytest.raises(AssertionError, match="from Stable to Dead"):
        driver.group.begin_deletion()


def test_members_that_expire_in_the_tick_that_ends_a_rebalance_do_not_disturb_it(driver: GroupDriver) -> None:
    """The first removal completes the rebalance, which drops the second member as well."""
    group = Group("g")
    request = JoinRequest(
        member_id="",
        instance_id=None,
        client_id="c",
        client_host="/h",
        session_timeout_ms=SESSION_MS,
        rebalance_timeout_ms=SESSION_MS,
        protocol_type="consumer",
        protocols=RANGE,
        needs_known_id=False,
        knows_skip_assignment=False,
    )
    (first,) = [each for each in group.join(request, "A", 0) if isinstance(each, JoinResponse)]
    effects = group.join(request, "B", 0)
    effects += group.join(replace(request, member_id=first.member_id), "A again", 0)
    (second,) = [each for each in effects if isinstance(each, JoinResponse) and each.token == "B"]
    for member_id in (first.member_id, second.member_id):
        group.heartbeat(member_id, None, group.generation, 0)
    assert group.join(request, "C", 50) == []
    answers = [each for each in group.tick(SESSION_MS + 60) if isinstance(each, JoinResponse)]
    assert [(each.token, each.error) for each in answers] == [("C", ErrorCode.NONE)]
    assert list(group.members) == [answers[0].member_id]
    assert group.next_tick_ms is not None


def test_members_must_share_a_protocol_with_those_that_are_there_now(driver: GroupDriver) -> None:
    def protocols(*names: str) -> tuple[tuple[str, bytes], ...]:
        return tuple((name, subscription("t")) for name in names)

    first, _ = driver.join_known(protocols=protocols("range", "range", "sticky"))
    refused = driver.join(protocols=protocols("other"))
    assert driver.joined(refused).error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    driver.join(first, protocols=protocols("other", "sticky"))
    refused = driver.join(protocols=protocols("range"))
    assert driver.joined(refused).error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    driver.leave(first)
    assert driver.join_known(protocols=protocols("range"))


def test_the_protocols_of_all_members_are_not_compared_again_for_each_that_joins(
    driver: GroupDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks = itertools.count()
    supports = Member.supports
    monkeypatch.setattr(Member, "supports", lambda self: (next(looks), supports(self))[1])
    for _ in range(100):
        driver.join(version=3)
    assert next(looks) < 300
