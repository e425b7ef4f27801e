"""The records of consumer groups: Kafka's bytes, compaction, records of other versions."""

from __future__ import annotations

import random
import struct
from uuid import UUID

import pytest

from skylog.groups import ConsumerGroup, Group, GroupConfig, Groups
from skylog.groups.consumer.changes import Changes
from skylog.groups.consumer.storage import records_of
from skylog.groups.stored_records import decode_key

from .driver import GroupDriver

Record = tuple[bytes, bytes | None]


def compacted(log: list[Record]) -> list[Record]:
    """The last record of each key, without the deleted ones."""
    return [(key, value) for key, value in dict(log).items() if value is not None]


def loaded(records: list[Record]) -> ConsumerGroup:
    groups = Groups(GroupConfig())
    for key, value in records:
        assert groups.replay(key, value) == "g"
    group = groups.find("g")
    assert isinstance(group, ConsumerGroup)
    return group


def facts(group: ConsumerGroup) -> object:
    members = {key: (each.metadata, each.current) for key, each in group.members.items()}
    return group.epoch, group.metadata_hash, group.target_epoch, group.targets, group.patterns, members


def busy_group() -> GroupDriver:
    driver = GroupDriver({"t": 6, "logs": 2})
    first = driver.join("a", instance_id="one", assignor="range")
    driver.join("b", topics=frozenset(), pattern="lo.*|t")
    driver.beat(first)
    driver.leave(driver.join("c"))
    return driver


@pytest.mark.parametrize("seed", range(5))
def test_compacted_records_in_any_order_are_the_same_group(seed: int) -> None:
    driver = busy_group()
    records = compacted(driver.log)
    random.Random(seed).shuffle(records)
    assert facts(loaded(records)) == facts(driver.group) == facts(loaded(driver.log))


def test_the_bytes_are_kafkas() -> None:
    driver = GroupDriver({"t": 2})
    driver.join("m")
    group = driver.group
    topic_id = UUID(int=1).bytes
    changes = Changes(epoch=True, target_epoch=True, targets={"m"}, current={"m"})
    records = dict(records_of(group, changes))
    member_key = b"\0\1g\0\1m"
    assignment = b"\2" + topic_id + b"\3" + struct.pack(">ii", 0, 1) + b"\0"
    assert records[b"\0\3\0\1g"] == (
        b"\0\0" + struct.pack(">i", 1) + b"\1\0\10" + struct.pack(">q", group.metadata_hash)
    )
    assert records[b"\0\6\0\1g"] == b"\0\0" + struct.pack(">i", 1) + b"\0"
    assert records[b"\0\7" + member_key] == b"\0\0" + assignment + b"\0"
    assert records[b"\0\10" + member_key] == (b"\0\0" + struct.pack(">iib", 1, 0, 0) + assignment + b"\1" + b"\0")


def test_metadata_of_topics_that_older_brokers_stored_is_ignored() -> None:
    driver = busy_group()
    key = b"\0\4\0\1g"
    assert decode_key(key).group == "g"
    assert facts(loaded([(key, b"\0\0\0"), *driver.log, (key, None)])) == facts(driver.group)


@pytest.mark.parametrize("value", [b"\0\1", b"", b"\0\0\0\0\0\1\0\0\0\0\x7f\1\1\0"])
def test_a_value_of_another_version_or_state_is_skipped(value: bytes) -> None:
    groups = Groups(GroupConfig())
    assert groups.replay(b"\0\10\0\1g\0\1m", value) is None
    assert groups.all() == []


def test_a_classic_record_replaces_the_group_and_its_tombstone_does_not() -> None:
    driver = busy_group()
    groups = Groups(GroupConfig())
    for key, value in driver.log:
        groups.replay(key, value)
    classic_key, classic_value = groups.group_record(Group("g"), 0)
    groups.replay(classic_key, None)
    assert isinstance(groups.find("g"), ConsumerGroup)
    groups.replay(classic_key, classic_value)
    assert isinstance(groups.find("g"), Group)
