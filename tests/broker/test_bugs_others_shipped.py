"""Bugs that others shipped, each as a scenario with real brokers on one event loop.

A scenario that cannot fail proves nothing. So each is run twice: as it is, and with the mend undone, when it must fail.
Bugs of the decisions alone are in `tests/replication/test_replicas_agree.py` and `tests/cluster/wrong_decisions.py`.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from skylog.cluster import (
    EntryChange,
    VersionConflictError,
)
from skylog.cluster.metadata import CONTROLLER
from skylog.cluster.store import Operation
from skylog.errors import SkylogError
from skylog.protocol.fetch import FetchResponse
from skylog.simulation import undo

from . import loop_cluster
from .loop_cluster import LoopCluster, a_batch_of, soon, values_of
from .raw import fetch_request, values_in

Scenario = Callable[[LoopCluster], Awaitable[None]]
Undo = Callable[[pytest.MonkeyPatch], None]


# -- KIP-101


async def a_follower_with_a_late_watermark_becomes_the_leader(cluster: LoopCluster) -> None:
    """All replicas have an acknowledged record. One does not know yet that it is committed when leaders change."""
    await cluster.start(1, 2, 3)
    await cluster.create("t", [1, 2, 3])
    await cluster.append(1, b"acknowledged")
    late = cluster.partition(2)
    await cluster.membership(2).fetchers.stop()
    late.log.high_watermark = 0
    await cluster.change("t", leader=3, leader_epoch=1)
    await soon(lambda: late.leader_epoch == 1)
    await cluster.change("t", leader=2, leader_epoch=2)
    await soon(lambda: late.is_leader)
    assert values_of(late) == [b"acknowledged"]


# -- KAFKA-13141


async def a_follower_fetches_from_where_the_logs_have_parted(cluster: LoopCluster) -> None:
    await cluster.start(1)
    follower = await cluster.by_hand(2, leader=1)
    await cluster.create("t", [1, 2])
    await cluster.append(1, b"a", acks=1)
    await cluster.change("t", leader_epoch=5)
    await cluster.append(1, b"b", acks=1)
    answer = await follower.fetch(2, epoch=3)  # its records are of a leader in between
    assert answer is not None
    assert answer.diverging_epoch is not None
    assert (answer.diverging_epoch.epoch, answer.diverging_epoch.end_offset) == (0, 1)
    assert cluster.partition(1).high_watermark == 0, "committed what the follower does not have"
    await follower.fetch(1, epoch=0)
    assert cluster.partition(1).high_watermark == 1


# -- KAFKA-14704, KAFKA-9491


async def a_follower_learns_the_watermark_and_that_its_log_has_parted(cluster: LoopCluster) -> None:
    """What becomes visible at the follower is what the leader has."""
    await cluster.start(1, 2)
    await cluster.create("t", [1, 2])
    await cluster.append(1, b"a")
    replica = cluster.partition(2)
    await soon(lambda: replica.high_watermark == 1)
    await cluster.membership(2).fetchers.stop()
    batch = a_batch_of(b"of another leader", epoch=3, base_offset=1)
    replica.log.append_as_follower(memoryview(batch), 3, 0)
    await cluster.change("t", leader_epoch=5, in_sync_replicas=(1,))
    await cluster.append(1, b"b")
    visible: set[bytes | None] = set()

    def note(_: int) -> None:
        visible.update(values_of(replica)[: replica.high_watermark])

    replica.wait_for_watermark(note)
    cluster.membership(2).fetchers.start()
    await soon(lambda: replica.high_watermark == 2)
    assert visible == {b"a", b"b"}


async def a_follower_is_so_late_that_its_leader_has_deleted_the_rest(cluster: LoopCluster) -> None:
    await cluster.start(1, 2)
    await cluster.create("t", [1, 2])
    await cluster.append(1, b"a")
    await soon(lambda: cluster.partition(2).high_watermark == 1)
    await cluster.membership(2).fetchers.stop()
    await cluster.change("t", in_sync_replicas=(1,))
    for value in (b"b", b"c", b"d"):
        await cluster.append(1, value)
    cluster.partition(1).delete_records(3)
    replica = cluster.partition(2)
    begun: list[tuple[int, int]] = []
    append = replica.log.append_as_follower

    def note(data: memoryview, leader_epoch: int, now_ms: int) -> int:
        begun.append((replica.log.log_start_offset, replica.high_watermark))
        return append(data, leader_epoch, now_ms)

    replica.log.append_as_follower = note  # type: ignore[method-assign]
    cluster.membership(2).fetchers.start()
    await soon(lambda: values_of(replica) == [b"d"])
    assert begun == [(3, 3)], "the watermark has not moved with the start"


# -- KAFKA-9835, KAFKA-9838


async def a_consumer_reads_while_records_are_appended_that_no_follower_has(cluster: LoopCluster) -> None:
    await cluster.start(1)
    follower = await cluster.by_hand(2, leader=1)
    await cluster.create("t", [1, 2])
    await cluster.append(1, b"a", acks=1)
    await follower.fetch(1, epoch=0)
    waiting = asyncio.ensure_future(_consume(follower.peer, 1, max_wait_ms=100))
    await asyncio.sleep(0.01)
    await cluster.append(1, b"b", acks=1)
    assert await waiting == []
    assert await _consume(follower.peer, 0) == [b"a"]
    await follower.fetch(2, epoch=0)
    assert await _consume(follower.peer, 0) == [b"a", b"b"]


async def _consume(peer: Any, offset: int, max_wait_ms: int = 0) -> list[bytes | None]:
    response: FetchResponse = await peer.ask(fetch_request("t", offset, max_wait_ms=max_wait_ms), 12)
    return [value for _, value in values_in(response.responses[0].partitions[0].records or b"")]


async def a_reader_holds_a_range_of_a_file_while_the_log_is_truncated(cluster: LoopCluster) -> None:
    """It must not get the records that come in the place of those that it has found."""
    await cluster.start(1)
    await cluster.create("t", [1])
    await cluster.append(1, b"a")
    await cluster.append(1, b"b")
    log = cluster.partition(1).log
    found = log.read(1, 1 << 20)
    assert found is not None
    log.truncate_to(1, 0)
    log.append_as_follower(memoryview(a_batch_of(b"x", epoch=3, base_offset=1)), 3, 0)
    with contextlib.suppress(OSError):  # the range is gone
        assert b"x" not in [value for _, value in values_in(os.pread(found.file.fileno(), 1 << 20, found.position))]


# -- KAFKA-12686, KAFKA-12751


async def an_in_sync_change_is_committed_but_the_answer_is_lost(cluster: LoopCluster) -> None:
    await _lone_leader(cluster)
    follower = await cluster.by_hand(2, leader=1)
    commit = cluster.sessions[1].commit

    async def commit_in_silence(operations: Sequence[Operation]) -> None:
        await commit(operations)
        raise SkylogError("the answer is lost")

    cluster.sessions[1].commit = commit_in_silence  # type: ignore[method-assign]
    await follower.fetch(1, 0)
    await cluster.until_in_sync(1, 2)
    cluster.sessions[1].commit = commit  # type: ignore[method-assign]
    leading = cluster.partition(1).leading
    assert leading is not None
    await soon(lambda: not leading.has_change_in_flight, "the end of the change")
    await cluster.change("t", in_sync_replicas=(1,))
    await follower.join(1)


async def an_append_comes_while_a_follower_is_being_added(cluster: LoopCluster) -> None:
    await _lone_leader(cluster)
    follower = await cluster.by_hand(2, leader=1)
    cluster.gates[1].close()
    await follower.fetch(1, 0)
    await soon(lambda: cluster.gates[1].waiting, "the commit")
    second = asyncio.ensure_future(cluster.append(1, b"second"))
    await asyncio.sleep(0)
    assert not second.done(), "committed without a replica that is about to be in sync"
    cluster.gates[1].open()
    await cluster.until_in_sync(1, 2)
    await follower.fetch(2, 0)
    await second


async def _lone_leader(cluster: LoopCluster, **configs: str) -> None:
    """Broker 1 leads a partition of two, and is alone in sync."""
    await cluster.start(1)
    await cluster.create("t", [1], **configs)
    await cluster.change("t", replicas=(1, 2))
    await cluster.append(1, b"first", acks=1)


# -- KAFKA-13916, KAFKA-14617


async def a_follower_starts_again_while_it_is_being_added(cluster: LoopCluster) -> None:
    """It may have less now. It must not be in sync because of what its predecessor had."""
    await _lone_leader(cluster)
    follower = await cluster.by_hand(2, leader=1)
    cluster.gates[1].close()
    await follower.fetch(1, 0)
    await soon(lambda: cluster.gates[1].waiting, "the commit")
    await follower.register()
    cluster.gates[1].open()
    leading = cluster.partition(1).leading
    assert leading is not None
    await soon(lambda: not leading.has_change_in_flight)
    assert cluster.image().in_sync_replicas == (1,)
    await follower.join(1)


async def a_former_process_fetches_after_its_successor_has_registered(cluster: LoopCluster) -> None:
    await _lone_leader(cluster)
    follower = await cluster.by_hand(2, leader=1)
    former = follower.incarnation
    await follower.register()
    await soon(lambda: cluster.brokers[1].metadata.image.brokers[2].incarnation > former)
    with contextlib.suppress(AssertionError):  # it is refused
        await follower.fetch(1, 0, incarnation=former)
    leading = cluster.partition(1).leading
    assert leading is not None
    assert leading.followers[2].end_offset == -1, "the position of a former process is taken for that of the present"


# -- KAFKA-15586, KAFKA-14139


async def the_last_replica_in_sync_loses_its_log_and_starts_first(cluster: LoopCluster) -> None:
    """With min.insync.replicas=2 nothing was committed after the other one had left, which is eligible."""
    await cluster.start(1, 2)
    await cluster.create("t", [1, 2], min_insync_replicas="2")
    await cluster.append(1, b"acknowledged")
    await cluster.crash(2)
    await cluster.until_in_sync(1)
    assert cluster.image().eligible_replicas == (2,)
    await cluster.crash(1)
    for path in (cluster.data_dir(1) / "t-0").glob("*.log"):
        os.truncate(path, 0)  # the machine has lost what was not on disk
    await cluster.start(1, 2)
    await soon(lambda: cluster.image().leader in (1, 2), "a leader")
    await cluster.until_in_sync(1, 2)
    assert cluster.values(1) == cluster.values(2) == [b"acknowledged"]


# -- KAFKA-18723


async def a_leader_sends_records_of_a_later_epoch_than_was_fetched_in(cluster: LoopCluster) -> None:
    await cluster.start(1, 2)
    await cluster.create("t", [1, 2])
    await cluster.append(1, b"a")
    replica = cluster.partition(2)
    await soon(lambda: replica.high_watermark == 1)
    batch = a_batch_of(b"b", epoch=7, base_offset=1)
    with contextlib.suppress(SkylogError):
        replica.append_from_leader(memoryview(batch), 5, 0)
    assert (replica.log.epochs.latest, values_of(replica)) == (0, [b"a"])


# -- KAFKA-6082, KAFKA-7235, KAFKA-2729


async def a_former_controller_writes(cluster: LoopCluster) -> None:
    """It does not see yet that another broker is the controller."""
    await cluster.start(1, 2)
    await cluster.create("t", [1, 2])
    former = cluster.membership(1).controller
    await soon(lambda: former.is_active)
    cluster.sessions[1]._watchers.clear()  # it hears nothing any more
    await cluster.store.open_session().commit(
        [EntryChange(CONTROLLER, None, cluster.store.entries(CONTROLLER)[CONTROLLER].version)]
    )
    await soon(lambda: cluster.membership(2).controller.is_active)
    topic = cluster.brokers[1].metadata.image.topics["t"]
    order = replace(topic, partitions=(replace(topic.partitions[0], leader=2, leader_epoch=9),))
    with contextlib.suppress(TimeoutError, VersionConflictError):
        async with asyncio.timeout(0.1):
            await former._commit_as_controller([order], [])
    assert cluster.image(seen_by=2).leader == 1


async def a_broker_is_elected_that_has_started_again(cluster: LoopCluster) -> None:
    """The order to lead is for its former process. The new one has not joined yet, and may have less."""
    await cluster.start(1)
    follower = await cluster.by_hand(2, leader=1)
    await cluster.create("t", [1, 2])
    controller = cluster.membership(1).controller
    await soon(lambda: controller.is_active)
    cluster.sessions[1]._watchers.clear()
    image = cluster.brokers[1].metadata.image
    await follower.register()
    topic = image.topics["t"]
    order = replace(topic, partitions=(replace(topic.partitions[0], leader=2, leader_epoch=1),))
    with contextlib.suppress(TimeoutError, VersionConflictError):
        async with asyncio.timeout(0.1):
            await controller._commit([(topic, order)], image.brokers)
    (entry,) = cluster.store.entries("/topics/").values()
    assert entry.value["partitions"][0]["leader"] == 1


async def a_leader_changes_an_outdated_state(cluster: LoopCluster) -> None:
    """The in-sync set is changed by the controller at the same time: the leader looks at the new state and goes on."""
    await cluster.start(1, 3)
    follower = await cluster.by_hand(2, leader=1)
    await cluster.create("t", [1, 2])
    await cluster.change("t", in_sync_replicas=(1,))
    await cluster.append(1, b"first")
    cluster.gates[1].close()
    await follower.fetch(1, 0)
    await soon(lambda: cluster.gates[1].waiting, "the commit")
    metadata = cluster.brokers[3].metadata
    await metadata.change_topic(metadata.image.topics["t"], lambda now: replace(now, configs={"retention.ms": "9000"}))
    cluster.gates[1].open()
    await cluster.until_in_sync(1, 2)
    assert cluster.brokers[3].metadata.image.topics["t"].configs == {"retention.ms": "9000"}


# -- KAFKA-19996


async def a_follower_is_at_a_watermark_that_stands_still(cluster: LoopCluster) -> None:
    """Too few replicas are in sync. It may join when it has everything, or it would soon be removed again."""
    await _lone_leader(cluster, min_insync_replicas="2")
    follower = await cluster.by_hand(2, leader=1)
    for _ in range(2):
        await cluster.append(1, b"a", acks=1)
    leader = cluster.partition(1)
    leader.log.high_watermark = 1
    await follower.fetch(1, epoch=0)
    await asyncio.sleep(0.05)
    assert cluster.image().in_sync_replicas == (1,)
    await follower.fetch(3, epoch=0)
    await cluster.until_in_sync(1, 2)


# -- all of them


@dataclass(frozen=True)
class Bug:
    ids: str
    scenario: Scenario
    undo: Undo
    settings: dict[str, str] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return f"{self.ids}: {self.scenario.__name__.replace('_', ' ')}"


BUGS = (
    Bug(
        "KIP-101",
        a_follower_with_a_late_watermark_becomes_the_leader,
        undo.truncate_to_the_watermark_of_each_new_follower,
    ),
    Bug("KAFKA-13141", a_follower_fetches_from_where_the_logs_have_parted, undo.record_each_position),
    Bug("KAFKA-14704", a_follower_learns_the_watermark_and_that_its_log_has_parted, undo.raise_the_watermark_first),
    Bug(
        "KAFKA-9491",
        a_follower_is_so_late_that_its_leader_has_deleted_the_rest,
        undo.keep_the_watermark_of_a_log_that_begins_again,
    ),
    Bug("KAFKA-9838", a_consumer_reads_while_records_are_appended_that_no_follower_has, undo.read_to_the_end),
    Bug("KAFKA-9835", a_reader_holds_a_range_of_a_file_while_the_log_is_truncated, undo.append_to_the_truncated_file),
    Bug("KAFKA-12751", an_in_sync_change_is_committed_but_the_answer_is_lost, undo.never_end_a_change),
    Bug("KAFKA-12686", an_append_comes_while_a_follower_is_being_added, undo.count_a_replica_when_it_is_in_the_store),
    Bug("KAFKA-13916", a_follower_starts_again_while_it_is_being_added, undo.do_not_check_incarnations),
    Bug("KAFKA-14617", a_former_process_fetches_after_its_successor_has_registered, undo.serve_any_incarnation),
    Bug(
        "KAFKA-15586, KAFKA-14139",
        the_last_replica_in_sync_loses_its_log_and_starts_first,
        undo.stay_in_sync_after_a_crash,
    ),
    Bug("KAFKA-18723", a_leader_sends_records_of_a_later_epoch_than_was_fetched_in, undo.take_any_epoch),
    Bug("KAFKA-6082", a_former_controller_writes, undo.write_as_any_controller),
    Bug("KAFKA-7235", a_broker_is_elected_that_has_started_again, undo.do_not_check_incarnations),
    Bug("KAFKA-2729", a_leader_changes_an_outdated_state, undo.repeat_with_the_version_that_was_known),
    Bug("KAFKA-19996", a_follower_is_at_a_watermark_that_stands_still, undo.join_at_the_watermark),
)


def play(bug: Bug, path: Path) -> None:
    async def run() -> None:
        async with LoopCluster(path, bug.settings) as cluster:
            await bug.scenario(cluster)

    asyncio.run(run())


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.name)
def test_no_harm_is_done_when(tmp_path: Path, bug: Bug) -> None:
    play(bug, tmp_path)


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.name)
def test_harm_is_done_without_the_mend_when(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bug: Bug) -> None:
    monkeypatch.setattr(loop_cluster, "PATIENCE_S", 0.5)
    bug.undo(monkeypatch)
    with pytest.raises(AssertionError):
        play(bug, tmp_path)
