"""All groups together: committed offsets, their records in the log, and their expiry."""

from __future__ import annotations

import pytest

from skylog.errors import ErrorCode, KafkaError
from skylog.groups import CommittedOffset, Group, GroupConfig, Groups, GroupState, JoinRequest
from skylog.groups.subscription import read_topics, same_topics, subscribed_topics
from skylog.model import TopicPartition

from .driver import GroupDriver, subscription

MINUTE_MS = 60_000
ORDERS = TopicPartition("orders", 0)
VISITS = TopicPartition("visits", 3)


@pytest.fixture
def groups() -> Groups:
    return Groups(GroupConfig(offsets_retention_minutes=10))


def committed(offset: int, timestamp: int = 0, metadata: str = "") -> CommittedOffset:
    return CommittedOffset(offset, -1, metadata, timestamp)


def stable(groups: Groups, *topics: str) -> Group:
    """A group `g` with one member that reads these topics, stored at time 0."""
    driver = GroupDriver()
    driver.group = groups.get_or_create("g")
    driver.stable(1, protocols=(("range", subscription(*topics)),))
    groups.group_record(driver.group, 0)
    return driver.group


def emptied(groups: Groups, at_ms: int) -> Group:
    group = stable(groups, "orders")
    group.leave(next(iter(group.members)), None, 0)
    groups.group_record(group, at_ms)
    return group


def test_a_commit_is_read_back_as_it_was_made(groups: Groups) -> None:
    offset = CommittedOffset(7, 3, "grüße, \0 und 🦀", 1234)
    assert groups.replay(*groups.offset_record("g", ORDERS, offset)) == "g"
    assert groups.offsets_of("g") == {ORDERS: offset}


def test_a_group_of_nothing_but_offsets_is_there_after_loading(groups: Groups) -> None:
    groups.replay(*groups.offset_record("g", ORDERS, committed(7)))
    group = groups.find("g")
    assert group is not None
    assert group.state is GroupState.EMPTY
    groups.replay(*groups.offset_record("g", ORDERS, None))
    assert groups.find("g") is None
    assert groups.offsets_of("g") == {}


def test_a_group_survives_the_deletion_of_its_offsets_while_its_own_record_is_there(groups: Groups) -> None:
    record = groups.group_record(stable(groups, "orders"), 0)
    loaded = Groups(GroupConfig())
    loaded.replay(*record)
    loaded.replay(*groups.offset_record("g", ORDERS, committed(1)))
    loaded.replay(*groups.offset_record("g", ORDERS, None))
    group = loaded.find("g")
    assert group is not None
    assert group.state is GroupState.STABLE


def test_the_records_of_a_deletion_leave_nothing(groups: Groups) -> None:
    history = [groups.group_record(emptied(groups, 0), 0)]
    history += [groups.offset_record("g", name, committed(1)) for name in (ORDERS, VISITS)]
    groups.commit("g", [(ORDERS, committed(1)), (VISITS, committed(1))])
    loaded = Groups(GroupConfig())
    for key, value in history + groups.deletion_records("g"):
        loaded.replay(key, value)
    assert loaded.all() == []
    assert loaded.offsets_of("g") == {}


def test_unreadable_records_are_skipped_when_loading(groups: Groups) -> None:
    for key in (b"", b"\0", b"\x7f\xff", b"\0\1\x7f\xff", b"\0\2\0\5ab"):
        assert groups.replay(key, b"") is None
    key, _ = groups.offset_record("g", ORDERS, committed(1))
    assert groups.replay(key, b"\0\x63") is None
    assert groups.all() == []


def test_members_that_were_loaded_have_a_session_from_the_end_of_loading_on(groups: Groups) -> None:
    loaded = Groups(GroupConfig())
    loaded.replay(*groups.group_record(stable(groups, "orders"), 0))
    group = loaded.find("g")
    assert isinstance(group, Group)
    (member,) = group.members.values()
    group.loaded(500_000)
    assert group.tick(500_000 + member.session_timeout_ms - 1) == []
    assert group.state is GroupState.STABLE
    group.tick(500_000 + member.session_timeout_ms)
    assert group.state is GroupState.EMPTY  # type: ignore[comparison-overlap] # it has changed since


def test_offsets_of_an_unmanaged_group_expire_by_their_commit(groups: Groups) -> None:
    groups.commit("g", [(ORDERS, committed(1, timestamp=0)), (VISITS, committed(1, timestamp=MINUTE_MS))])
    group = groups.get_or_create("g")
    assert groups.expired_offsets(group, 10 * MINUTE_MS - 1, [ORDERS, VISITS]) == []
    assert groups.expired_offsets(group, 10 * MINUTE_MS, [ORDERS, VISITS]) == [ORDERS]
    assert groups.expired_offsets(group, 11 * MINUTE_MS, [ORDERS, VISITS]) == [ORDERS, VISITS]


def test_offsets_of_a_managed_group_are_kept_for_the_retention_after_its_last_member_left(groups: Groups) -> None:
    group = emptied(groups, at_ms=5 * MINUTE_MS)
    groups.commit("g", [(ORDERS, committed(1, timestamp=0))])
    assert groups.expired_offsets(group, 15 * MINUTE_MS - 1, [ORDERS, VISITS]) == []
    assert groups.expired_offsets(group, 15 * MINUTE_MS, [ORDERS, VISITS]) == [ORDERS]


def test_a_group_with_members_loses_only_old_offsets_of_topics_without_subscribers(groups: Groups) -> None:
    group = stable(groups, "orders")
    groups.commit("g", [(ORDERS, committed(1)), (VISITS, committed(1))])
    assert groups.expired_offsets(group, 10 * MINUTE_MS, [ORDERS, VISITS]) == [VISITS]


def test_a_group_without_members_and_offsets_is_expired(groups: Groups) -> None:
    group = emptied(groups, 0)
    groups.commit("g", [(ORDERS, committed(1))])
    assert not groups.is_expired(group)
    groups.remove_offsets("g", [ORDERS])
    assert groups.is_expired(group)


def test_a_group_that_only_a_refused_request_has_named_is_forgotten(groups: Groups) -> None:
    group = groups.get_or_create("g")
    groups.drop_unused(group)
    assert groups.find("g") is None


def test_a_group_that_is_in_use_or_was_stored_is_not_dropped(groups: Groups) -> None:
    pending = groups.get_or_create("pending")
    wish = JoinRequest("", None, "c", "/h", 10_000, 10_000, "consumer", (("range", b""),), needs_known_id=True)
    pending.join(wish, object(), 0)
    groups.commit("offsets", [(ORDERS, committed(1))])
    emptied(groups, 0)
    for group in groups.all():
        assert isinstance(group, Group)
        groups.drop_unused(group)
    assert {group.group_id for group in groups.all()} == {"pending", "offsets", "g"}


def test_only_an_empty_group_may_be_deleted(groups: Groups) -> None:
    with pytest.raises(KafkaError) as refused:
        groups.check_deletable("g")
    assert refused.value.code is ErrorCode.GROUP_ID_NOT_FOUND
    stable(groups, "orders")
    with pytest.raises(KafkaError) as refused:
        groups.check_deletable("g")
    assert refused.value.code is ErrorCode.NON_EMPTY_GROUP


@pytest.mark.parametrize(
    "metadata",
    [
        b"",
        b"\0\1\0\0\0\1",
        b"\0\1\0\0\0\1\0\5ab",
        b"\0\1\x7f\xff\xff\xff\xff\xfe",  # a length of -2 would be read again and again
        b"\0\1\0\0\0\1\0\1\xff",
    ],
)
def test_metadata_that_is_no_subscription_names_no_topics(metadata: bytes) -> None:
    assert read_topics(metadata) is None


def test_the_topics_of_a_subscription_are_read(groups: Groups) -> None:
    assert read_topics(subscription("orders", "visits", owned=b"more")) == {"orders", "visits"}
    assert read_topics(subscription()) == set()
    group = stable(groups, "orders")
    assert subscribed_topics("consumer", group.members.values()) == {"orders"}
    assert subscribed_topics("connect", group.members.values()) is None
    assert same_topics("connect", b"this", b"that")
    assert not same_topics("consumer", subscription("a"), subscription("b"))
