"""Leaders change at random while clients write and read: nothing that a reader has seen is lost or replaced later.

Clients write with acks=1, so every election may cut off records. They read from leaders and followers, with fetches
that wait in the brokers, and look up offsets by time.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from pathlib import Path

from skylog.errors import ErrorCode
from skylog.net.peer import Peer
from skylog.protocol.frames import request_frame
from skylog.protocol.headers import RequestHeader
from skylog.protocol.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from skylog.records import iterate_batches, read_records
from skylog.storage import Log
from tests.seeds import seed

from .members import Members, in_cluster
from .raw import batch_of, fetch_request, produce_request

ELECTIONS = 120
READERS = 5
MAY_FAIL = {
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.OFFSET_NOT_AVAILABLE,
}
SMALL = {"log.segment.bytes": "1000", "log.index.interval.bytes": "200", "replica.fetch.wait.max.ms": "50"}


class Clients:
    """Writers and readers of topic `t`. `seen` has the time of the record at each offset that was read."""

    def __init__(self, members: Members, randomness: random.Random) -> None:
        self._members = members
        self._random = randomness
        self._peers: list[Peer] = []
        self.is_over = False
        self.seen: dict[int, int] = {}
        self.written = self.lookups = 0

    @property
    def have_seen_enough(self) -> bool:
        return len(self.seen) > 50 and self.lookups > 5

    async def _connect(self) -> dict[int, Peer]:
        peers = {node_id: await self._members.connect(node_id) for node_id in self._members.brokers}
        self._peers += peers.values()
        return peers

    def close(self) -> None:
        for peer in self._peers:
            peer.close()

    async def write(self) -> None:
        """Write batches of one to three records. Each record has a time of its own."""
        peers = await self._connect()
        timestamp = 0
        while not self.is_over:
            count = self._random.randrange(1, 4)
            batch = batch_of(*[b"v" * self._random.randrange(60)] * count, timestamp=timestamp)
            timestamp += count
            request = produce_request("t", batch, acks=1)
            response = await peers[self._random.choice(list(peers))].ask(request, 9)
            self.written += not response.responses[0].partition_responses[0].error_code
            if timestamp % 7 == 0:
                await asyncio.sleep(0.001)

    async def read(self) -> None:
        peers, offset = await self._connect(), 0
        while not self.is_over:
            wait_ms, max_bytes = self._random.choice((0, 5, 50)), self._random.choice((100, 5000))
            request = fetch_request("t", offset, max_wait_ms=wait_ms, partition_max_bytes=max_bytes)
            response = await peers[self._random.choice(list(peers))].ask(request, 12)
            (row,) = response.responses[0].partitions
            assert row.error_code == 0 or row.error_code in MAY_FAIL, ErrorCode(row.error_code).name
            for at, timestamp in times_in(bytes(row.records or b"")):
                if at >= offset:
                    assert self.seen.setdefault(at, timestamp) == timestamp, f"offset {at} was replaced"
                    offset = at + 1
            if self._random.random() < 0.02:
                offset = 0

    async def look_up(self) -> None:
        """Look up times and the latest offset, which never moves back."""
        peers, latest = await self._connect(), 0
        while not self.is_over:
            timestamp = self._random.choice((-1, -3, self._random.randrange(self.written * 2 + 1)))
            row = ListOffsetsPartition(partition_index=0, timestamp=timestamp)
            request = ListOffsetsRequest(topics=[ListOffsetsTopic(name="t", partitions=[row])])
            response = await peers[self._random.choice(list(peers))].ask(request, 9)
            (found,) = response.topics[0].partitions
            assert found.error_code == 0 or found.error_code in MAY_FAIL, ErrorCode(found.error_code).name
            if found.error_code or found.offset < 0:
                continue
            if timestamp == -1:
                assert found.offset >= latest, f"the latest offset moves from {latest} to {found.offset}"
                latest = found.offset
            else:
                known = self.seen.setdefault(found.offset, found.timestamp)
                assert known == found.timestamp, f"offset {found.offset} was replaced"
                self.lookups += 1


def times_in(data: bytes) -> list[tuple[int, int]]:
    """Return offset and time of the records in a response, whose batches must be whole."""
    found: list[tuple[int, int]] = []
    end = 0
    for position, header in iterate_batches(data):
        end = position + header.size_bytes
        found += [(record.offset, record.timestamp) for record in read_records(data[position:end])]
    assert end == len(data), "a batch is cut"
    return found


def stored(log: Log) -> dict[int, int]:
    found: dict[int, int] = {}
    offset = log.log_start_offset
    while (part := log.read(offset, 1 << 20)) is not None:
        found |= dict(times_in(part.read()))
        offset = max(found) + 1
    return found


def test_nothing_that_was_read_is_lost_or_replaced_while_leaders_change(tmp_path: Path) -> None:
    randomness = random.Random(seed())

    async def scenario(members: Members) -> None:
        truncations = 0
        await members.create("t")
        clients = Clients(members, randomness)
        work = [clients.write(), clients.write(), clients.look_up(), *(clients.read() for _ in range(READERS))]
        running = [asyncio.create_task(each) for each in work]
        count = 0
        while count < ELECTIONS or not (truncations > 3 and clients.have_seen_enough):
            count += 1
            await asyncio.sleep(randomness.choice((0, 0.001, 0.005, 0.02)))
            before = members.replica(members.image("t").leader, "t").log.log_end_offset
            leader = randomness.choice(members.image("t").in_sync_replicas)
            await members.elect("t", leader)
            truncations += members.replica(leader, "t").log.log_end_offset < before
            for task in running:
                if task.done():
                    task.result()
        clients.is_over = True
        await asyncio.gather(*running)
        clients.close()
        logs = [members.replica(node_id, "t").log for node_id in members.brokers]
        await members.until(lambda: len({log.log_end_offset for log in logs}) == 1)
        final = stored(logs[0])
        assert [stored(log) for log in logs[1:]] == [final, final]
        assert clients.seen.items() <= final.items()
        assert sum(members.membership(node_id).fetchers.failures for node_id in members.brokers) == 0

    in_cluster(tmp_path, scenario, SMALL)


def test_every_follower_learns_the_watermark_though_epochs_begin_while_it_is_sent(tmp_path: Path) -> None:
    """Nothing is appended afterwards that would take it along."""
    randomness = random.Random(seed())

    async def scenario(members: Members) -> None:
        await members.create("t")
        replicas = [members.replica(node_id, "t") for node_id in members.brokers]
        for number in range(1, 41):
            await members.produce(1, "t", batch_of(b"x"), acks=1)
            for _ in range(randomness.randrange(4)):
                await asyncio.sleep(randomness.choice((0, 0, 0.002, 0.01)))
                await members.elect("t", 1)
            await members.until(lambda count=number: all(each.high_watermark == count for each in replicas))  # type: ignore[misc]

    in_cluster(tmp_path, scenario, {"replica.fetch.wait.max.ms": "5000"})


def test_every_follower_learns_the_watermark_though_its_requests_cross(tmp_path: Path) -> None:
    """Another topic makes the followers send a second request before the first is answered."""
    randomness = random.Random(seed())

    async def scenario(members: Members) -> None:
        await members.create("t")
        await members.create("u")
        replicas = [members.replica(node_id, "t") for node_id in members.brokers]
        for number in range(1, 101):
            await members.produce(1, "t", batch_of(b"x"), acks=1)
            for _ in range(randomness.randrange(8)):
                await members.elect("u", 1)
                await asyncio.sleep(randomness.choice((0, 0, 0.001, 0.004)))
            await members.until(lambda count=number: all(each.high_watermark == count for each in replicas))  # type: ignore[misc]

    in_cluster(tmp_path, scenario, {"replica.fetch.wait.max.ms": "50000"})


def test_a_fetch_that_waits_over_several_leaderships_shows_only_what_is_committed(tmp_path: Path) -> None:
    """It waits at broker 1, which leads, follows, cuts off its record and leads again."""

    async def scenario(members: Members) -> None:
        await members.create("t")
        await members.stop_following(1, 2, 3)
        await members.produce(1, "t", batch_of(b"lost"), acks=1)
        waiting = asyncio.create_task(members.fetch(1, "t", 0, max_wait_ms=500))
        await members.until(lambda: members.replica(1, "t")._listeners.consumers)
        await members.elect("t", 2)
        await members.produce(2, "t", batch_of(b"uncommitted"), acks=1)
        members.follow(1)
        await members.until(lambda: members.replica(1, "t").log.epochs.latest == 1)
        await members.elect("t", 1)
        found = await waiting
        assert (found.error_code, found.high_watermark, bytes(found.records or b"")) == (0, 0, b"")
        assert (await members.fetch(1, "t", 0)).high_watermark == 0

    in_cluster(tmp_path, scenario)


def test_a_response_that_is_sent_slowly_has_the_records_that_were_read_or_ends(tmp_path: Path) -> None:
    """The broker truncates its log while a client has not read its response. Other records take the place there."""

    async def scenario(members: Members) -> None:
        await members.create("t", replicas=(1, 2), min_insync_replicas="1")
        await members.produce(1, "t", batch_of(b"both have this"))
        await members.stop_following(1, 2)
        await members.change("t", in_sync_replicas=(1,))
        for _ in range(20):
            await members.produce(1, "t", batch_of(b"a" * 500_000))
        reader, writer = await asyncio.open_connection("127.0.0.1", members.port(1), limit=1 << 16)
        request = fetch_request("t", 0, partition_max_bytes=1 << 30)
        writer.write(bytes(request_frame(RequestHeader(1, 12, 1, "slow"), request)))
        size = int.from_bytes(await reader.readexactly(4), "big")
        await asyncio.sleep(0.05)
        await members.change("t", leader=2, leader_epoch=1, in_sync_replicas=(2,))  # an unclean election
        for _ in range(20):
            await members.produce(2, "t", batch_of(b"b" * 500_000), acks=1)
        members.follow(1)
        log = members.replica(1, "t").log
        await members.until(lambda: log.epochs.latest == 1 and log.log_end_offset == 21)
        received = bytearray()
        with contextlib.suppress(ConnectionError):
            while len(received) < size and (more := await reader.read(1 << 16)):
                received += more
        assert b"b" * 100 not in received
        assert received.count(b"a") < 20 * 500_000, "the response was too small for the socket"
        writer.close()

    in_cluster(tmp_path, scenario, size=2)
