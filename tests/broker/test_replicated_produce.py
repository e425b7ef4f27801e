"""Produce requests with acks=all while replicas lag, leave the in-sync set, or the leader moves."""

from __future__ import annotations

import asyncio
import threading
import time
from pathlib import Path

import pytest

from skylog.broker import ServerConfig
from skylog.broker.clustered import clustered_broker
from skylog.broker.partition import ALL
from skylog.cluster.embedded import EmbeddedStore
from skylog.errors import ErrorCode
from skylog.protocol.produce import LeaderIdAndEpoch, PartitionProduceResponse
from skylog.storage.files import LogFile

from .members import Members, in_cluster
from .raw import RawClient, batch_of, produce_request, values_in


def idempotent(value: bytes, sequence: int = 0) -> bytearray:
    return batch_of(value, producer_id=7, producer_epoch=0, base_sequence=sequence)


async def send(
    members: Members, batch: bytearray, acks: int = ALL, timeout_ms: int = 10_000
) -> asyncio.Task[PartitionProduceResponse]:
    """Send a batch to broker 1, and return when it is in its log."""
    end = members.replica(1, "t").log.log_end_offset
    task = asyncio.create_task(members.produce(1, "t", batch, acks=acks, timeout_ms=timeout_ms))
    await members.until(lambda: members.replica(1, "t").log.log_end_offset > end or task.done())
    return task


async def is_unanswered(task: asyncio.Task[PartitionProduceResponse]) -> bool:
    await asyncio.wait([task], timeout=0.1)
    return not task.done()


def test_an_append_that_is_not_replicated_in_time_is_late_but_stays(tmp_path: Path) -> None:
    async def scenario(members: Members) -> None:
        await members.create("t")
        await members.stop_following(3)
        began = time.monotonic()
        late = await members.produce(1, "t", batch_of(b"x"), timeout_ms=50)
        assert time.monotonic() - began >= 0.05
        assert (late.error_code, late.base_offset) == (ErrorCode.REQUEST_TIMED_OUT, -1)
        assert (await members.fetch(1, "t", 0)).high_watermark == 0
        members.follow(3)
        found = await members.fetch(1, "t", 0, max_wait_ms=10_000)
        assert values_in(found.records) == [(0, b"x")]

    in_cluster(tmp_path, scenario)


def test_each_request_waits_for_its_own_timeout_and_responses_keep_their_order(tmp_path: Path) -> None:
    async def scenario(members: Members) -> None:
        await members.create("t")
        await members.stop_following(2, 3)
        peer = await members.peer(1)
        requests = [produce_request("t", batch_of(b"x"), timeout_ms=each) for each in (80, 10, 80, 10)]
        began = time.monotonic()
        codes = []
        for answered in [peer.send(request, 9) for request in requests]:
            response = await answered
            codes.append(response.responses[0].partition_responses[0].error_code)  # type: ignore[attr-defined]
        assert time.monotonic() - began >= 0.08
        assert codes == [ErrorCode.REQUEST_TIMED_OUT] * 4
        assert len(members.brokers[1].commits.deadlines) == 0

    in_cluster(tmp_path, scenario)


def test_a_request_that_is_committed_leaves_no_deadline(tmp_path: Path) -> None:
    async def scenario(members: Members) -> None:
        await members.create("t")
        await members.stop_following(2)
        waiting = await send(members, batch_of(b"x"))
        deadlines = members.brokers[1].commits.deadlines
        assert len(deadlines) == 1
        members.follow(2)
        assert (await waiting).error_code == ErrorCode.NONE
        assert len(deadlines) == 0

    in_cluster(tmp_path, scenario)


def test_acks_1_does_not_wait_for_replicas(tmp_path: Path) -> None:
    async def scenario(members: Members) -> None:
        await members.create("t")
        await members.stop_following(2, 3)
        assert (await members.produce(1, "t", batch_of(b"x"), acks=1, timeout_ms=0)).error_code == ErrorCode.NONE
        await members.change("t", in_sync_replicas=(1,))
        assert (await members.produce(1, "t", batch_of(b"y"), acks=1, timeout_ms=0)).error_code == ErrorCode.NONE
        refused = await members.produce(1, "t", batch_of(b"z"))
        assert refused.error_code == ErrorCode.NOT_ENOUGH_REPLICAS
        assert members.replica(1, "t").log.log_end_offset == 2

    in_cluster(tmp_path, scenario)


def test_a_request_fails_when_the_in_sync_set_becomes_too_small_while_it_waits(tmp_path: Path) -> None:
    async def scenario(members: Members) -> None:
        await members.create("t")
        await members.stop_following(2, 3)
        waiting = await send(members, batch_of(b"x"))
        await members.change("t", in_sync_replicas=(1, 2))
        assert await is_unanswered(waiting)
        await members.change("t", in_sync_replicas=(1,))
        assert (await waiting).error_code == ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND
        assert members.replica(1, "t").high_watermark == 0

    in_cluster(tmp_path, scenario)


def test_a_batch_that_is_sent_again_is_acknowledged_when_the_original_is_committed_and_not_before(
    tmp_path: Path,
) -> None:
    async def scenario(members: Members) -> None:
        await members.create("t")
        await members.stop_following(2, 3)
        first = await send(members, idempotent(b"x"))
        await members.change("t", in_sync_replicas=(1,))
        assert (await first).error_code == ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND
        assert (await members.produce(1, "t", idempotent(b"x"))).error_code == ErrorCode.NOT_ENOUGH_REPLICAS
        await members.change("t", in_sync_replicas=(1, 2))
        late = await members.produce(1, "t", idempotent(b"x"), timeout_ms=20)
        assert late.error_code == ErrorCode.REQUEST_TIMED_OUT
        again = asyncio.create_task(members.produce(1, "t", idempotent(b"x")))
        assert await is_unanswered(again)
        members.follow(2)
        assert ((await again).error_code, (await again).base_offset) == (ErrorCode.NONE, 0)
        assert members.replica(1, "t").log.log_end_offset == 1

    in_cluster(tmp_path, scenario)


def test_a_batch_that_is_sent_again_to_a_new_leader_waits_until_it_is_committed_there(tmp_path: Path) -> None:
    async def scenario(members: Members) -> None:
        await members.create("t")
        await members.stop_following(3)
        first = await send(members, idempotent(b"x"))
        await members.until(lambda: members.replica(2, "t").log.log_end_offset == 1)
        await members.elect("t", 2)
        assert (await first).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        again = asyncio.create_task(members.produce(2, "t", idempotent(b"x")))
        assert await is_unanswered(again)
        members.follow(3)
        assert ((await again).error_code, (await again).base_offset) == (ErrorCode.NONE, 0)

    in_cluster(tmp_path, scenario)


def test_a_topic_in_a_cluster_cannot_require_more_replicas_in_sync_than_it_has(tmp_path: Path) -> None:
    async def scenario(members: Members) -> None:
        await members.create("t", replicas=(2,), min_insync_replicas="3")
        assert (await members.produce(2, "t", batch_of(b"x"))).error_code == ErrorCode.NONE

    in_cluster(tmp_path, scenario)


def test_a_request_for_several_partitions_reports_each(tmp_path: Path) -> None:
    async def scenario(members: Members) -> None:
        await members.create("t")
        await members.create("u", replicas=(1,))
        await members.stop_following(3)
        request = produce_request("t", batch_of(b"x"), timeout_ms=30)
        request.topic_data += produce_request("u", batch_of(b"y")).topic_data
        response = await (await members.peer(1)).ask(request, 11)
        codes = {each.name: each.partition_responses[0].error_code for each in response.responses}
        assert codes == {"t": ErrorCode.REQUEST_TIMED_OUT, "u": ErrorCode.NONE}

    in_cluster(tmp_path, scenario)


# -- the leader moves


@pytest.mark.parametrize("version", [9, 10, 11])
def test_a_broker_that_does_not_lead_names_the_leader_and_its_address(tmp_path: Path, version: int) -> None:
    async def scenario(members: Members) -> None:
        await members.create("t", replicas=(2, 1))
        for node_id in (1, 3):  # a follower, and a broker without a replica
            response, row = await members.ask_to_produce(node_id, "t", batch_of(b"x"), version=version)
            assert row.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
            if version < 10:
                assert (row.current_leader, response.node_endpoints) == (None, [])
                continue
            assert row.current_leader == LeaderIdAndEpoch(leader_id=2, leader_epoch=0)
            (endpoint,) = response.node_endpoints
            assert (endpoint.node_id, endpoint.host, endpoint.port) == (2, "127.0.0.1", members.port(2))
            assert endpoint.rack == "rack-2"

    in_cluster(tmp_path, scenario)


def test_without_a_leader_none_is_named(tmp_path: Path) -> None:
    async def scenario(members: Members) -> None:
        await members.create("t", replicas=(2, 1))
        await members.stop(2)
        await members.until(lambda: members.image("t").leader == 1)
        await members.stop(1)
        await members.until(lambda: members.image("t").leader == -1)
        response, row = await members.ask_to_produce(3, "t", batch_of(b"x"))
        assert row.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert (row.current_leader, response.node_endpoints) == (None, [])

    in_cluster(tmp_path, scenario)


def test_a_request_that_waits_when_the_leader_moves_learns_who_leads(tmp_path: Path) -> None:
    async def scenario(members: Members) -> None:
        await members.create("t")
        await members.stop_following(2, 3)
        waiting = await send(members, batch_of(b"x"))
        await members.elect("t", 3)
        row = await waiting
        assert row.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert row.current_leader == LeaderIdAndEpoch(leader_id=3, leader_epoch=1)

    in_cluster(tmp_path, scenario)


def test_a_client_that_has_left_does_not_disturb_the_change_of_the_leader(tmp_path: Path) -> None:
    async def scenario(members: Members) -> None:
        await members.create("t")
        await members.stop_following(2, 3)
        connections = members.brokers[1].listener.connections
        peer = await members.connect(1)
        peer.send(produce_request("t", batch_of(b"x")), 11)
        await members.until(lambda: members.replica(1, "t").log.log_end_offset == 1)
        count = len(connections)
        peer.close()
        await members.until(lambda: len(connections) < count)
        bound = members.brokers[1].endpoints._bound
        bound["PLAINTEXT"] = bound["PLAINTEXT"]._replace(
            host="0.0.0.0"
        )  # then it advertises the address that the client connected to
        await members.elect("t", 2)
        assert not members.replica(1, "t").is_leader
        assert members.brokers[1].metadata.failures == 0

    in_cluster(tmp_path, scenario)


def test_a_batch_that_is_opened_while_the_leader_moves_is_not_appended(tmp_path: Path) -> None:
    """Otherwise a follower's log would have a batch of its own."""

    async def scenario(members: Members) -> None:
        await members.create("t", cleanup_policy="compact")
        await members.stop_following(1, 2, 3)
        may_open = threading.Event()
        members.brokers[1].opener.submit(may_open.wait, 20)
        waiting = asyncio.create_task(members.produce(1, "t", batch_of(b"x" * 100_000)))
        await members.until(lambda: members.brokers[1].opener._work_queue.qsize() > 0)
        await members.elect("t", 2)
        may_open.set()
        assert (await waiting).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert members.replica(1, "t").log.log_end_offset == 0

    in_cluster(tmp_path, scenario)


def test_a_batch_that_is_opened_waits_for_replicas_up_to_the_timeout(tmp_path: Path) -> None:
    async def scenario(members: Members) -> None:
        await members.create("t", cleanup_policy="compact")
        await members.stop_following(3)
        late = await members.produce(1, "t", batch_of(b"x" * 100_000), timeout_ms=20)
        assert late.error_code == ErrorCode.REQUEST_TIMED_OUT
        members.follow(3)
        assert (await members.produce(1, "t", batch_of(b"y" * 100_000))).base_offset == 1

    in_cluster(tmp_path, scenario)


# -- fsyncs


class SlowFile(LogFile):
    def sync(self) -> None:
        time.sleep(0.1)
        super().sync()


def test_the_timeout_does_not_apply_to_an_fsync_alone(tmp_path: Path) -> None:
    """Kafka's appends include the fsync: the time for replicas begins after it."""

    async def run() -> None:
        store = EmbeddedStore(None)

        async def open_session() -> object:
            return store.open_session()

        broker = await clustered_broker(tmp_path, open_session, ServerConfig.parse({}), open_file=SlowFile)  # type: ignore[arg-type]
        port = await broker.start("127.0.0.1", 0)
        await broker.topics.create("t", [[1]], {"flush.messages": "1"})
        request = produce_request("t", batch_of(b"x"), timeout_ms=1)

        def ask() -> int:
            with RawClient(port) as client:
                code: int = client.ask(request, 9).responses[0].partition_responses[0].error_code
                return code

        assert await asyncio.to_thread(ask) == ErrorCode.NONE
        await broker.stop()

    asyncio.run(run())
