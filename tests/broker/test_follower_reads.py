"""Consumers that read from a follower (KIP-392), and learn where a partition has moved (KIP-951)."""

from __future__ import annotations

import asyncio
import dataclasses
import time
from pathlib import Path
from typing import Any

import pytest

from skylog.broker import ServerConfig
from skylog.broker.config import RACK_AWARE_SELECTOR
from skylog.errors import ConfigError, ErrorCode
from skylog.protocol.fetch import FetchRequest, LeaderIdAndEpoch, PartitionData

from .members import Members, in_cluster
from .raw import batch_of, fetch_request, values_in

RACKS = {"replica.selector.class": RACK_AWARE_SELECTOR}
LONG_MS = 15_000  # a fetch that is not woken takes this long


async def fill(members: Members, *values: bytes) -> None:
    """Commit messages, and wait until all followers know that they are committed."""
    for value in values:
        assert (await members.produce(1, "t", batch_of(value))).error_code == ErrorCode.NONE
    await members.until(lambda: all(members.replica(each, "t").high_watermark == len(values) for each in (1, 2, 3)))


# -- reading


def test_a_follower_serves_what_is_committed_from_version_11_on(tmp_path: Path) -> None:
    async def scenario(members: Members) -> None:
        await members.create("t")
        await fill(members, b"a", b"b")
        for version in (11, 12, 17):
            found = await members.fetch(2, "t", 0, version=version)
            assert (found.error_code, found.high_watermark) == (ErrorCode.NONE, 2)
            assert values_in(found.records) == [(0, b"a"), (1, b"b")]
        assert (await members.fetch(2, "t", 0, version=10)).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert (await members.fetch(1, "t", 0, version=10)).error_code == ErrorCode.NONE

    in_cluster(tmp_path, scenario)


def test_a_follower_serves_nothing_that_is_not_committed(tmp_path: Path) -> None:
    async def scenario(members: Members) -> None:
        await members.create("t")
        await fill(members, b"a")
        await members.stop_following(3)
        await members.produce(1, "t", batch_of(b"b"), acks=1)
        await members.until(lambda: members.replica(2, "t").log.log_end_offset == 2)
        found = await members.fetch(2, "t", 0)
        assert values_in(found.records) == [(0, b"a")]
        ahead = await members.fetch(2, "t", 1)
        assert (ahead.error_code, bytes(ahead.records or b"")) == (ErrorCode.NONE, b"")

    in_cluster(tmp_path, scenario)


def test_an_offset_that_a_follower_does_not_have_yet_is_not_available(tmp_path: Path) -> None:
    """A consumer that gets OFFSET_OUT_OF_RANGE may reset its offset. The leader has this one."""

    async def scenario(members: Members) -> None:
        await members.create("t")
        await fill(members, b"a", b"b")
        await members.stop_following(2)
        await members.produce(1, "t", batch_of(b"c"), acks=1)
        behind = await members.fetch(2, "t", 3)
        assert (behind.error_code, behind.high_watermark) == (ErrorCode.OFFSET_NOT_AVAILABLE, 2)
        assert (await members.fetch(1, "t", 4)).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
        members.replica(2, "t").log.delete_records(1)
        assert (await members.fetch(2, "t", 0)).error_code == ErrorCode.OFFSET_OUT_OF_RANGE

    in_cluster(tmp_path, scenario)


def test_a_follower_checks_the_epoch_of_a_consumer(tmp_path: Path) -> None:
    async def scenario(members: Members) -> None:
        await members.create("t")
        await members.elect("t", 2)
        for node_id in (2, 3):
            assert (await members.fetch(node_id, "t", 0, epoch=0)).error_code == ErrorCode.FENCED_LEADER_EPOCH
            assert (await members.fetch(node_id, "t", 0, epoch=1)).error_code == ErrorCode.NONE
            assert (await members.fetch(node_id, "t", 0, epoch=2)).error_code == ErrorCode.UNKNOWN_LEADER_EPOCH

    in_cluster(tmp_path, scenario)


def test_a_broker_that_has_left_the_cluster_serves_no_consumers(tmp_path: Path) -> None:
    """Its replicas do not grow any more. Consumers would wait there for records that others have."""

    async def scenario(members: Members) -> None:
        await members.create("t")
        await fill(members, b"a")
        for node_id in (1, 2):
            members.brokers[node_id].replicas.may_lead = False
            members.brokers[node_id].replicas.reassign_roles()
            assert (await members.fetch(node_id, "t", 0)).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER

    in_cluster(tmp_path, scenario)


async def parked(members: Members, node_id: int, offset: int, **options: Any) -> asyncio.Task[PartitionData]:
    """Return a fetch that waits in a broker."""
    consumers = members.replica(node_id, "t")._listeners.consumers
    before = len(consumers)
    task = asyncio.create_task(members.fetch(node_id, "t", offset, max_wait_ms=LONG_MS, **options))
    await members.until(lambda: len(consumers) > before)
    return task


def test_a_fetch_that_waits_at_a_follower_is_woken_by_the_watermark(tmp_path: Path) -> None:
    async def scenario(members: Members) -> None:
        await members.create("t")
        began = time.monotonic()
        waiting = await parked(members, 2, 0)
        await members.produce(1, "t", batch_of(b"a"))
        assert values_in((await waiting).records) == [(0, b"a")]
        assert time.monotonic() - began < LONG_MS / 1000 / 2

    in_cluster(tmp_path, scenario)


def test_a_fetch_that_waits_at_a_follower_is_woken_by_a_new_epoch(tmp_path: Path) -> None:
    async def scenario(members: Members) -> None:
        await members.create("t")
        began = time.monotonic()
        waiting = await parked(members, 2, 0, epoch=0)
        await members.elect("t", 3)
        assert (await waiting).error_code == ErrorCode.FENCED_LEADER_EPOCH
        assert time.monotonic() - began < LONG_MS / 1000 / 2

    in_cluster(tmp_path, scenario)


def test_a_fetch_that_waits_is_woken_by_a_watermark_over_batches_from_before_a_restart(tmp_path: Path) -> None:
    """The sizes of these batches are not known, only that there are more now."""

    async def scenario(members: Members) -> None:
        await members.create("t")
        await members.stop_following(2, 3)
        await members.produce(1, "t", batch_of(b"a"), acks=1)
        members.replica(1, "t")._listeners._invisible.clear()  # as after a restart
        began = time.monotonic()
        waiting = await parked(members, 1, 0)
        members.follow(2, 3)
        assert values_in((await waiting).records) == [(0, b"a")]
        assert time.monotonic() - began < LONG_MS / 1000 / 2

    in_cluster(tmp_path, scenario)


# -- the replica to read from


async def preferred(members: Members, rack: str, offset: int = 0, **options: Any) -> int:
    return (await members.fetch(1, "t", offset, rack=rack, **options)).preferred_read_replica


def test_the_leader_sends_consumers_to_the_follower_in_their_rack(tmp_path: Path) -> None:
    async def scenario(members: Members) -> None:
        await members.create("t")
        await fill(members, b"a")
        began = time.monotonic()
        for version in (11, 12, 17):
            found = await members.fetch(1, "t", 1, rack="rack-2", version=version, max_wait_ms=LONG_MS)
            assert (found.error_code, found.preferred_read_replica, bytes(found.records or b"")) == (0, 2, b"")
        assert time.monotonic() - began < LONG_MS / 1000, "the response does not wait for records"
        assert await preferred(members, "rack-3") == 3
        for rack in ("rack-1", "rack-4", ""):
            assert await preferred(members, rack) == -1, rack
        elsewhere = await members.fetch(2, "t", 0, rack="rack-3")
        assert (elsewhere.preferred_read_replica, values_in(elsewhere.records)) == (-1, [(0, b"a")])

    in_cluster(tmp_path, scenario, RACKS)


def test_a_consumer_of_several_partitions_is_sent_away_without_waiting_for_the_others(tmp_path: Path) -> None:
    async def scenario(members: Members) -> None:
        await members.create("t")
        await members.create("u", replicas=(1,))
        request = dataclasses.replace(fetch_request("t", 0, max_wait_ms=LONG_MS), rack_id="rack-2")
        request.topics += fetch_request("u", 0).topics
        began = time.monotonic()
        response = await (await members.peer(1)).ask(request, 12)
        replicas = {each.topic: each.partitions[0].preferred_read_replica for each in response.responses}
        assert replicas == {"t": 2, "u": -1}
        assert time.monotonic() - began < LONG_MS / 1000 / 2

    in_cluster(tmp_path, scenario, RACKS)


def test_consumers_stay_with_the_leader_unless_a_selector_is_set(tmp_path: Path) -> None:
    async def scenario(members: Members) -> None:
        await members.create("t")
        await fill(members, b"a")
        assert await preferred(members, "rack-2") == -1

    in_cluster(tmp_path, scenario)


def test_a_follower_is_preferred_only_if_it_is_in_sync_has_the_offset_and_stays(tmp_path: Path) -> None:
    async def scenario(members: Members) -> None:
        await members.create("t")
        await fill(members, b"a", b"b")
        await members.stop_following(2)
        await members.produce(1, "t", batch_of(b"c"), acks=1)
        assert await preferred(members, "rack-2", 2) == 2
        assert await preferred(members, "rack-2", 3) == -1, "it ends at offset 2"
        await members.change("t", in_sync_replicas=(1, 3))
        assert await preferred(members, "rack-2", 0) == -1, "it is not in sync"
        assert await preferred(members, "rack-3", 0) == 3
        await members.stop(3)
        assert await preferred(members, "rack-3", 0) == -1, "it has stopped"

    in_cluster(tmp_path, scenario, RACKS)


def test_of_several_followers_in_a_rack_the_one_with_the_longest_log_is_preferred(tmp_path: Path) -> None:
    async def scenario(members: Members) -> None:
        await members.create("t")
        await fill(members, b"a")
        await members.stop_following(2)
        await members.produce(1, "t", batch_of(b"b"), acks=1)
        leading = members.replica(1, "t").leading
        assert leading is not None
        await members.until(lambda: leading.followers[3].end_offset == 2)
        assert await preferred(members, "there") == 3

    in_cluster(tmp_path, scenario, RACKS | {"broker.rack": "there"}, of_single={1: {"broker.rack": "here"}})


def test_a_fetch_session_reports_the_replica_to_read_from_each_time(tmp_path: Path) -> None:
    async def scenario(members: Members) -> None:
        await members.create("t")
        await fill(members, b"a")
        peer = await members.connect(1)
        first = fetch_request("t", 1, session_epoch=0)
        opened = await peer.ask(first, 12)
        assert (opened.session_id > 0, opened.responses[0].partitions[0].preferred_read_replica) == (True, -1)
        for epoch in (1, 2):
            following = FetchRequest(
                max_wait_ms=LONG_MS,
                min_bytes=1,
                session_id=opened.session_id,
                session_epoch=epoch,
                topics=[],
                rack_id="rack-2",
            )
            response = await peer.ask(following, 12)
            assert response.responses[0].partitions[0].preferred_read_replica == 2
        peer.close()

    in_cluster(tmp_path, scenario, RACKS)


def test_another_selector_is_refused_with_the_name_of_the_one_there_is() -> None:
    with pytest.raises(ConfigError, match=r"com\.example\.Nearest: expected org\.apache\.kafka.*RackAware"):
        ServerConfig.parse({"replica.selector.class": "com.example.Nearest"})
    assert ServerConfig.parse({"replica.selector.class": ""}).broker.replica_selector_class == ""


# -- partitions that have moved


@pytest.mark.parametrize("version", [12, 15, 16, 17])
def test_a_broker_without_the_partition_names_the_leader_and_its_address(tmp_path: Path, version: int) -> None:
    async def scenario(members: Members) -> None:
        await members.create("t", replicas=(2, 1))
        response, row = await members.ask_to_fetch(3, "t", 0, version=version)
        assert row.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        if version < 16:
            assert (row.current_leader, response.node_endpoints) == (None, [])
            return
        assert row.current_leader == LeaderIdAndEpoch(leader_id=2, leader_epoch=0)
        (endpoint,) = response.node_endpoints
        assert (endpoint.node_id, endpoint.host, endpoint.port) == (2, "127.0.0.1", members.port(2))
        assert endpoint.rack == "rack-2"

    in_cluster(tmp_path, scenario)


def test_a_consumer_of_an_older_epoch_learns_the_new_one(tmp_path: Path) -> None:
    async def scenario(members: Members) -> None:
        await members.create("t")
        await members.elect("t", 2)
        for node_id in (2, 3):  # the leader itself, and a follower
            response, row = await members.ask_to_fetch(node_id, "t", 0, version=16, epoch=0)
            assert row.error_code == ErrorCode.FENCED_LEADER_EPOCH
            assert row.current_leader == LeaderIdAndEpoch(leader_id=2, leader_epoch=1)
            assert [each.node_id for each in response.node_endpoints] == [2]
        response, row = await members.ask_to_fetch(2, "t", 0, version=16, epoch=2)
        assert (row.error_code, row.current_leader) == (ErrorCode.UNKNOWN_LEADER_EPOCH, None)

    in_cluster(tmp_path, scenario)


def test_a_large_fetch_names_the_leaders_too(tmp_path: Path) -> None:
    """It is decoded and encoded in a thread."""

    async def scenario(members: Members) -> None:
        await members.create("t", replicas=(2, 1))
        request = fetch_request(members.brokers[1].metadata.image.topics["t"].topic_id, 0)
        (row,) = request.topics[0].partitions
        request.topics[0].partitions = [dataclasses.replace(row, partition=index) for index in range(3000)]
        response = await (await members.peer(3)).ask(request, 17)
        moved = [each for each in response.responses[0].partitions if each.current_leader is not None]
        assert [(each.partition_index, each.current_leader.leader_id) for each in moved] == [(0, 2)]
        assert [each.node_id for each in response.node_endpoints] == [2]

    in_cluster(tmp_path, scenario)
