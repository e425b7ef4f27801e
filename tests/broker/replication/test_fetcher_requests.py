"""A follower with two requests under way gets an answer to a row that it has sent again meanwhile."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Self
from uuid import uuid4

import pytest

from skylog.broker.config import BrokerConfig
from skylog.broker.flusher import Flusher
from skylog.broker.partition import Partition
from skylog.broker.replication import fetcher as fetcher_module
from skylog.broker.replication.fetcher import ReplicaFetcher
from skylog.clock import SystemClock
from skylog.cluster import BrokerImage, PartitionImage
from skylog.net.peer import EncodedAnswer, Peer
from skylog.protocol.fetch_hot import FetchCall, PartitionAnswer, fetch_reply, read_fetch
from skylog.protocol.headers import read_response_header
from skylog.protocol.replica_fetch_hot import VERSION
from skylog.replication.token_bucket import UNLIMITED, TokenBucket
from skylog.storage import LogConfig
from tests.broker.loop_cluster import soon
from tests.storage.logs import Home, a_batch

OURS, THEIRS = 1, 2
HOUSEKEEPING: Any = None  # no answer here shortens a log
SESSION_ID = 7


class ScriptedLeader:
    """Takes the place of the connection to a leader. It keeps the requests, and the test answers them."""

    def __init__(self) -> None:
        self._requests: deque[tuple[FetchCall, EncodedAnswer]] = deque()
        self.connections = 0

    async def connect(self, *_: object, **__: object) -> Self:
        self.connections += 1
        return self

    def close(self) -> None:
        pass

    def recycle(self, _: memoryview) -> None:
        pass

    def send_encoded(self, _: int, version: int, body: bytes, on_done: Callable[[], None]) -> EncodedAnswer:
        answer = EncodedAnswer(on_done)
        self._requests.append((read_fetch(memoryview(body), 0, version), answer))
        return answer

    async def rows_sent(self, count: int) -> list[list[tuple[int, int]]]:
        """Wait for requests. Return the leader epochs and offsets of the rows of each."""
        await soon(lambda: len(self._requests) == count)
        return [
            [(row.leader_epoch, row.offset) for _, rows in call.topics for row in rows] for call, _ in self._requests
        ]

    def answer(self, partition: Partition, batch: bytes = b"") -> None:
        """Answer the oldest request, with a batch if it is given."""
        rows: list[Any] = [(partition.topic_id, [PartitionAnswer(0, 0, 0, 0, 0, batch, len(batch))])] if batch else []
        frame = memoryview(b"".join(fetch_reply(1, VERSION, 0, rows, False, SESSION_ID)))[4:]
        self._requests.popleft()[1].resolve(frame, read_response_header(frame, 1)[1])


def follow(partition: Partition, epoch: int) -> None:
    partition.follow(PartitionImage(THEIRS, epoch, (THEIRS, OURS), (THEIRS, OURS)))


@asynccontextmanager
async def fetcher() -> AsyncIterator[ReplicaFetcher]:
    with ThreadPoolExecutor(1) as executor:
        broker = BrokerImage(THEIRS, "127.0.0.1", 9092)
        flusher, bucket = Flusher(executor), TokenBucket(UNLIMITED, 0.0)
        fetching = ReplicaFetcher(OURS, 1, broker, flusher, SystemClock(), HOUSEKEEPING, BrokerConfig(), bucket)
        yield fetching
        fetching.stop()
        await fetching.ended()


@pytest.fixture
def leader(monkeypatch: pytest.MonkeyPatch) -> ScriptedLeader:
    leader = ScriptedLeader()
    monkeypatch.setattr(Peer, "connect", leader.connect)
    return leader


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path)


def replica_in(home: Home) -> Partition:
    log = home.open()
    return Partition(log.name, uuid4(), log)


def test_an_answer_to_the_row_of_a_former_epoch_is_ignored(home: Home, leader: ScriptedLeader) -> None:
    batch = bytes(a_batch())

    async def run() -> None:
        partition = replica_in(home)
        async with fetcher() as fetching:
            follow(partition, 0)
            fetching.add(partition)
            assert await leader.rows_sent(1) == [[(0, 0)]]
            leader.answer(partition)
            assert await leader.rows_sent(1) == [[]]
            follow(partition, 1)
            fetching.add(partition)
            assert await leader.rows_sent(2) == [[], [(1, 0)]]
            leader.answer(partition, batch)
            leader.answer(partition, batch)
            assert await leader.rows_sent(1) == [[(1, 1)]]
            assert fetching.failures == 0

    asyncio.run(run())


def test_a_row_is_not_sent_again_when_only_the_in_sync_set_changes(home: Home, leader: ScriptedLeader) -> None:
    async def run() -> None:
        partition = replica_in(home)
        async with fetcher() as fetching:
            follow(partition, 0)
            fetching.add(partition)
            await leader.rows_sent(1)
            leader.answer(partition)
            await leader.rows_sent(1)
            follow(partition, 0)
            fetching.add(partition)
            leader.answer(partition)
            assert await leader.rows_sent(1) == [[]]

    asyncio.run(run())


def test_a_silent_connection_is_given_up_although_there_is_always_something_to_send(
    home: Home, leader: ScriptedLeader, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fetcher_module, "ANSWER_PATIENCE_S", 0.0)  # beyond the half second of a parked fetch
    monkeypatch.setattr(fetcher_module, "RECONNECT_S", 0.0)

    async def run() -> None:
        partition = replica_in(home)
        async with fetcher() as fetching:
            follow(partition, 0)
            fetching.add(partition)
            await leader.rows_sent(1)
            leader.answer(partition)
            for epoch in range(1, 21):
                follow(partition, epoch)
                fetching.add(partition)
                await asyncio.sleep(0.1)
            assert leader.connections > 1

    asyncio.run(run())


def test_what_was_in_the_log_before_the_policy_demanded_an_fsync_is_on_disk_before_it_counts(
    tmp_path: Path, leader: ScriptedLeader
) -> None:
    home = Home(tmp_path)
    home.open().append_as_follower(memoryview(a_batch()), 0, 0)
    home.disk.sync_gate.clear()

    async def run() -> None:
        partition = replica_in(home)
        partition.log.configure(LogConfig(flush_messages=1))
        async with fetcher() as fetching:
            follow(partition, 0)
            fetching.add(partition)
            assert await leader.rows_sent(1) == [[]]
            leader.answer(partition)
            assert await leader.rows_sent(1) == [[]]
            home.disk.sync_gate.set()
            assert await leader.rows_sent(2) == [[], [(0, 1)]]

    asyncio.run(run())
