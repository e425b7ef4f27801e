"""Members of the classic protocol in a consumer group, and groups that change their protocol."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from skylog.errors import ErrorCode, KafkaError
from skylog.groups import ConsumerGroup, GroupConfig, GroupState, JoinRequest, JoinResponse
from skylog.groups.consumer import classic_members, conversion
from skylog.groups.consumer.embedded_protocol import (
    EmbeddedSubscription,
    EmbeddedTopicPartitions,
    read_assignment,
    write_assignment,
)
from skylog.groups.consumer.partitions import Partitions, size
from skylog.groups.consumer.storage import everything

from ..driver import GroupDriver as ClassicDriver
from .driver import REBALANCE_MS, Client, GroupDriver

SESSION_MS = 10_000


def subscription(topics: tuple[str, ...] = ("t",), owned: dict[str, list[int]] | None = None) -> bytes:
    rows = [EmbeddedTopicPartitions(topic=name, partitions=numbers) for name, numbers in (owned or {}).items()]
    return b"\0\3" + EmbeddedSubscription(topics=list(topics), owned_partitions=rows).write(3)


class Classic:
    """A classic member of a consumer group. It reports what it was assigned with its last sync."""

    def __init__(self, driver: GroupDriver, member_id: str, instance: str | None = None) -> None:
        self.driver, self.member_id, self.instance = driver, member_id, instance
        self.generation = -1
        self.owned: Partitions = {}
        self.protocol = "range"

    @property
    def names(self) -> dict[Any, str]:
        return {topic.topic_id: name for name, topic in self.driver.topics.items()}

    def request(self, member_id: str | None = None, **changes: Any) -> JoinRequest:
        owned = {self.names[key]: sorted(numbers) for key, numbers in self.owned.items()}
        protocols = ((self.protocol, subscription(owned=owned)),)
        known = self.member_id if member_id is None else member_id
        made = JoinRequest(
            known, self.instance, "c", "/h", SESSION_MS, REBALANCE_MS, "consumer", protocols, needs_known_id=True
        )
        return replace(made, **changes)

    def join(self, member_id: str | None = None, **changes: Any) -> JoinResponse:
        driver, group, request = self.driver, self.driver.group, self.request(member_id, **changes)
        classic_members.update(group, self.member_id, request, driver.topics, driver.now_ms)
        driver.assign()
        response = classic_members.respond_to_join(group, self.member_id, request, driver.topics, None, driver.now_ms)
        driver.store()
        self.generation = response.generation
        return response

    def sync(self) -> None:
        group, now_ms = self.driver.group, self.driver.now_ms
        response = classic_members.sync(
            group, self.member_id, self.instance, self.generation, self.names, None, now_ms, "consumer", self.protocol
        )
        found = read_assignment(response.assignment, self.driver.topics)
        assert found is not None
        self.owned = found

    def enter(self, member_id: str | None = None) -> Classic:
        self.join(member_id)
        self.sync()
        return self

    def heartbeat(self) -> ErrorCode:
        try:
            classic_members.heartbeat(
                self.driver.group, self.member_id, self.instance, self.generation, self.driver.now_ms
            )
        except KafkaError as error:
            return error.code
        return ErrorCode.NONE

    @property
    def count(self) -> int:
        return size(self.owned)


def test_a_classic_member_gets_partitions_when_others_have_given_them_up() -> None:
    driver = GroupDriver()
    new = driver.join("new")
    old = Classic(driver, "old").enter()
    assert (old.generation, old.count) == (2, 0)
    assert old.heartbeat() is ErrorCode.NONE  # there is nothing to get yet
    new = driver.advance(new)
    assert new.count == 3
    assert old.heartbeat() is ErrorCode.REBALANCE_IN_PROGRESS
    old.enter()
    assert (old.generation, old.count) == (2, 3)
    assert old.heartbeat() is ErrorCode.NONE


def test_a_classic_member_is_asked_to_rejoin_and_revokes_first() -> None:
    driver = GroupDriver()
    driver.join("first")
    driver.leave(Client("first"))
    old = Classic(driver, "old").enter()
    assert old.count == 6
    driver.join("new")
    assert old.heartbeat() is ErrorCode.REBALANCE_IN_PROGRESS
    old.join()  # with all that it owns: the response only asks it to revoke
    old.sync()
    assert (old.count, old.generation) == (3, 3)
    assert driver.group.members["new"].current.assigned == {}
    assert old.heartbeat() is ErrorCode.REBALANCE_IN_PROGRESS
    old.enter()
    assert (old.count, old.generation) == (3, 4)
    assert driver.beat(Client("new", 4)).count == 3


def test_other_generations_protocols_and_members_are_refused() -> None:
    driver = GroupDriver()
    driver.join("new")
    old = Classic(driver, "old").enter()

    def refused(**changes: Any) -> ErrorCode:
        with pytest.raises(KafkaError) as error:
            Classic(driver, "other").join(**changes)
        return error.value.code

    assert refused(protocol_type="connect") is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert refused(protocols=(("sticky", subscription()),)) is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert refused(protocols=(("range", b"?"),)) is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    old.generation += 1
    assert old.heartbeat() is ErrorCode.ILLEGAL_GENERATION
    old.member_id = "new"
    assert old.heartbeat() is ErrorCode.UNKNOWN_MEMBER_ID
    old.member_id = "nobody"
    assert old.heartbeat() is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_member_that_neither_rejoins_nor_syncs_is_removed() -> None:
    driver = GroupDriver()
    driver.join("first")
    driver.leave(Client("first"))
    old = Classic(driver, "old").enter()
    new = driver.join("new")
    for _ in range(12):
        driver.pass_ms(REBALANCE_MS // 10)
        new = driver.beat(new)
        old.heartbeat()
    assert list(driver.group.members) == ["new"]
    assert driver.beat(new).count == 6


def test_a_static_classic_member_is_replaced_and_keeps_its_partitions() -> None:
    driver = GroupDriver()
    driver.join("first")
    driver.leave(Client("first"))
    old = Classic(driver, "one-1", "one").enter(member_id="")
    again = Classic(driver, "one-2", "one").enter(member_id="")
    assert (again.generation, again.count) == (old.generation, 6)
    with pytest.raises(KafkaError) as fenced:
        old.join()
    assert fenced.value.code is ErrorCode.FENCED_INSTANCE_ID


# -- conversions


def classic_group() -> tuple[ClassicDriver, GroupDriver]:
    """A stable classic group of two consumers, with three partitions each; and a driver to convert it with."""
    after = GroupDriver()
    before = ClassicDriver()
    names = {topic.topic_id: name for name, topic in after.topics.items()}
    topic_id = after.topics["t"].topic_id
    ids = before.stable(2, protocols=(("range", subscription()),))
    for position, member_id in enumerate(ids):
        numbers = frozenset(range(3 * position, 3 * position + 3))
        before.group.members[member_id].assignment = write_assignment({topic_id: numbers}, names, 3)
    before.now_ms = after.now_ms
    return before, after


def upgraded(before: ClassicDriver, after: GroupDriver) -> ConsumerGroup:
    group = conversion.to_consumer_group(before.group, after.config, after.topics, after.now_ms)
    group.changes = everything(group)
    after.groups.put(group)
    after.group = group
    return group


def test_an_upgraded_group_goes_on_with_the_partitions_and_the_generation() -> None:
    before, after = classic_group()
    group = upgraded(before, after)
    assert group.epoch == before.group.generation
    assert [size(each.current.assigned) for each in group.members.values()] == [3, 3]
    new = after.join("new")
    assert (new.epoch, new.count) == (group.epoch, 0)
    assert group.epoch == before.group.generation + 1
    after.restart()
    assert set(after.group.members) == {*before.group.members, "new"}
    member = Classic(after, next(iter(before.group.members)))
    member.generation = before.group.generation
    assert member.heartbeat() is ErrorCode.REBALANCE_IN_PROGRESS
    member.enter()
    assert member.count == 2


def test_waiting_joins_are_told_to_rejoin_the_upgraded_group() -> None:
    before, _ = classic_group()
    waiting = before.join(next(iter(before.group.members)), protocols=(("range", subscription(("t", "u"))),))
    assert before.waits(waiting)
    effects = before.group.dissolve()
    assert [(each.token, each.error) for each in effects] == [(waiting, ErrorCode.REBALANCE_IN_PROGRESS)]


@pytest.mark.parametrize(
    ("options", "changes"),
    [
        ({"migration_policy": "disabled"}, {}),
        ({"migration_policy": "downgrade"}, {}),
        ({"max_size": 1}, {}),
        ({}, {"protocol_type": "connect"}),
    ],
)
def test_a_group_that_cannot_be_upgraded_is_not_found(options: dict[str, Any], changes: dict[str, Any]) -> None:
    before, _ = classic_group()
    after = GroupDriver(**options)
    for name, value in changes.items():
        setattr(before.group, name, value)
    with pytest.raises(KafkaError) as refused:
        conversion.to_consumer_group(before.group, after.config, after.topics, 0)
    assert refused.value.code is ErrorCode.GROUP_ID_NOT_FOUND


def test_a_group_is_downgraded_when_only_classic_members_are_left() -> None:
    before, after = classic_group()
    group = upgraded(before, after)
    new = after.join("new")
    assert not conversion.can_downgrade(group, GroupConfig())
    after.leave(new)
    assert conversion.can_downgrade(group, GroupConfig())
    assert not conversion.can_downgrade(group, GroupConfig(max_size=1))
    names = {topic.topic_id: name for name, topic in after.topics.items()}
    classic = conversion.to_classic_group(group, GroupConfig(), names)
    assert classic.state is GroupState.STABLE
    assert classic.generation == group.target_epoch == group.epoch - 1
    assert {key: each.assignment for key, each in classic.members.items()} == {
        key: each.assignment for key, each in before.group.members.items()
    }
    classic.rebalance(after.now_ms)
    assert classic.state is GroupState.PREPARING  # type: ignore[comparison-overlap] # it has changed since


def test_a_group_that_is_being_deleted_does_not_change_its_protocol() -> None:
    driver = GroupDriver()
    classic = ClassicDriver().group
    for group in (driver.group, classic):
        group.begin_deletion()
    with pytest.raises(KafkaError) as refused:
        conversion.to_classic_group(driver.group, GroupConfig(), {})
    assert refused.value.code is ErrorCode.COORDINATOR_NOT_AVAILABLE
    with pytest.raises(KafkaError) as refused:
        conversion.to_consumer_group(classic, driver.config, driver.topics, 0)
    assert refused.value.code is ErrorCode.COORDINATOR_NOT_AVAILABLE


def test_an_empty_group_changes_its_protocol_either_way() -> None:
    driver = GroupDriver()
    driver.leave(driver.join("a"))
    classic = conversion.to_classic_group(driver.group, GroupConfig(), {})
    assert (classic.state, classic.generation) == (GroupState.EMPTY, driver.group.epoch)
    back = conversion.to_consumer_group(classic, driver.config, driver.topics, driver.now_ms)
    assert (back.epoch, back.members) == (driver.group.epoch, {})
