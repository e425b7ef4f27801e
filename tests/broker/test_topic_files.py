"""The files of topics as they come and go: created where there is no room, deleted and created again, set aside."""

from __future__ import annotations

import asyncio
import shutil
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from skylog.broker import Broker
from skylog.errors import ErrorCode
from skylog.protocol.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from skylog.protocol.create_topics import CreatableTopic, CreateTopicsRequest
from skylog.protocol.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from skylog.protocol.delete_topics import DeleteTopicsRequest
from skylog.records import Record, build_batch
from skylog.storage.files import LogFile

from .conftest import create_topic
from .process import BrokerProcess, BrokerThread, until
from .raw import RawClient, batch_of, values_in

COMPACTED = {"cleanup_policy": "compact", "segment_bytes": "1000", "min_cleanable_dirty_ratio": "0.01"}
ONE_CLOSED_SEGMENT = COMPACTED | {"segment_bytes": "4000"}  # of the first fifty messages, and none of twenty
NO_CLEANING = {"log.cleaner.enable": "false", "log.flush.scheduler.interval.ms": "20"}


def fill(client: RawClient, topic: str, numbers: range, partition: int = 0) -> None:
    for number in numbers:
        batch = build_batch([Record(b"%d" % number * 20, b"key-%d" % number, 1000)])
        assert client.produce(topic, batch, partition=partition).error_code == 0


def offsets(client: RawClient, topic: str) -> list[int]:
    found: list[int] = []
    while (next_offset := found[-1] + 1 if found else 0) < client.end_offset(topic):
        found += [offset for offset, _ in values_in(client.fetch(topic, next_offset).records)]
    return found


def is_on_disk(broker: Broker, topic: str) -> bool:
    log = broker.replicas.leader(topic, 0).log
    return not log.has_unflushed_segments


@pytest.mark.parametrize("moment", ["before the process", "while it runs", "before the swap"])
def test_a_topic_recreated_while_its_cleaner_works_keeps_what_is_acknowledged(tmp_path: Path, moment: str) -> None:
    data_dir = tmp_path / "data"
    with BrokerThread(data_dir, NO_CLEANING) as thread, RawClient(thread.port) as client:
        create_topic(client, "t", 1, ONE_CLOSED_SEGMENT)
        fill(client, "t", range(50))
        until(lambda: thread.look(lambda broker: is_on_disk(broker, "t")), "closed segments on disk")
        cleaning = asyncio.run_coroutine_threadsafe(thread.broker.compactor.clean_one(), thread.run(_running_loop()))
        if moment == "while it runs":
            until(lambda: thread.look(lambda broker: broker.compactor.is_running), "the cleaner's process")
        if moment == "before the swap":
            until(lambda: (data_dir / "t-0" / "cleaning").exists() or cleaning.done(), "the cleaner's files")
        client.ask(DeleteTopicsRequest(topic_names=["t"], timeout_ms=10_000), 4)
        create_topic(client, "t", 1, ONE_CLOSED_SEGMENT)
        fill(client, "t", range(20))
        assert cleaning.result(20)
        fill(client, "t", range(50, 100))
        assert offsets(client, "t") == list(range(70))
        assert thread.look(lambda broker: broker.compactor.failures) == 0
    with BrokerThread(data_dir, NO_CLEANING) as thread, RawClient(thread.port) as client:
        assert offsets(client, "t") == list(range(70))
    until(lambda: not list(data_dir.glob("*.deleted")), "the old folder to be removed")


async def _running_loop() -> asyncio.AbstractEventLoop:
    return asyncio.get_running_loop()


def test_a_log_that_cannot_be_cleaned_is_set_aside_and_the_others_are_cleaned(tmp_path: Path) -> None:
    data_dir = tmp_path / "data"
    with BrokerThread(data_dir, NO_CLEANING) as thread, RawClient(thread.port) as client:
        for topic in ("damaged", "sound"):
            create_topic(client, topic, 1, COMPACTED)
        for number in range(60):
            fill(client, "damaged", range(number % 7, number % 7 + 1))
        for number in range(30):
            fill(client, "sound", range(number % 7, number % 7 + 1))
        until(lambda: thread.look(lambda b: is_on_disk(b, "damaged") and is_on_disk(b, "sound")), "segments on disk")
        flip_a_bit(sorted((data_dir / "damaged-0").glob("*.log"))[1])
        looked = 0
        while thread.run(thread.broker.compactor.clean_one()):
            looked += 1
            assert looked < 10, "the same log is chosen again and again"
        assert thread.look(lambda broker: broker.compactor.runs) == 1
        assert thread.look(lambda broker: broker.compactor.failures) == 1
        assert thread.look(lambda b: [str(log.name) for log in b.compactor.uncleanable]) == ["damaged-0"]
        assert len(offsets(client, "sound")) < 20
        client.ask(DeleteTopicsRequest(topic_names=["damaged"], timeout_ms=10_000), 4)
        assert not thread.look(lambda broker: broker.compactor.uncleanable)


def flip_a_bit(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def test_a_folder_of_another_topic_of_the_same_name_is_not_taken_for_the_topic(tmp_path: Path) -> None:
    """As a crash may leave it: the topic was recreated, but the disk still has the old folder."""
    data_dir = tmp_path / "data"
    with BrokerThread(data_dir) as thread, RawClient(thread.port) as client:
        create_topic(client, "t")
        fill(client, "t", range(10))
    shutil.copytree(data_dir / "t-0", tmp_path / "old")
    with BrokerThread(data_dir) as thread, RawClient(thread.port) as client:
        client.ask(DeleteTopicsRequest(topic_names=["t"], timeout_ms=10_000), 4)
        create_topic(client, "t")
    shutil.rmtree(data_dir / "t-0")
    shutil.copytree(tmp_path / "old", data_dir / "t-0")
    with BrokerThread(data_dir) as thread, RawClient(thread.port) as client:
        assert client.end_offset("t") == 0
        fill(client, "t", range(3))
        assert offsets(client, "t") == [0, 1, 2]


# -- no room


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system with few inodes."""
    path = tmp_path / "disk"
    path.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "nr_inodes=60,size=64m", "tmpfs", str(path)]
    if shutil.which("mount") is None or subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("a file system of its own needs root")
    yield path
    subprocess.run(["umount", "-l", str(path)], check=True)


def creates(partitions: int) -> Callable[[RawClient], Any]:
    def create(client: RawClient) -> Any:
        topic = CreatableTopic(name="wide", num_partitions=partitions, replication_factor=1)
        return client.ask(CreateTopicsRequest(topics=[topic]), 7).topics[0]

    return create


def grows(partitions: int) -> Callable[[RawClient], Any]:
    def grow(client: RawClient) -> Any:
        topic = CreatePartitionsTopic(name="t", count=partitions)
        return client.ask(CreatePartitionsRequest(topics=[topic], timeout_ms=10_000), 2).results[0]

    return grow


@pytest.mark.parametrize("change", [creates(40), grows(40)], ids=["create", "grow"])
def test_a_topic_that_has_no_room_is_refused_whole_and_the_broker_goes_on(
    small_disk: Path, change: Callable[[RawClient], Any]
) -> None:
    with BrokerProcess(small_disk / "data") as broker:
        with RawClient(broker.port) as client:
            create_topic(client, "t")
            result = change(client)
            assert result.error_code == ErrorCode.KAFKA_STORAGE_ERROR, result.error_message
            assert "No space left" in (result.error_message or "")
            assert [(topic.name, len(topic.partitions)) for topic in client.metadata().topics] == [("t", 1)]
            assert client.produce("t", batch_of(b"a")).error_code == 0
            folders = [path.name for path in broker.data_dir.iterdir() if path.is_dir()]
            assert [name for name in folders if not name.endswith(".deleted")] == ["t-0"]
        broker.stop()
        broker.start()
        with RawClient(broker.port) as client:
            assert offsets(client, "t") == [0]
            create_topic(client, "wide", 3)
    assert not broker.tracebacks()


def test_a_log_that_cannot_be_opened_is_offline_until_it_can_and_the_others_are_served(tmp_path: Path) -> None:
    data_dir = tmp_path / "data"
    with BrokerThread(data_dir) as thread, RawClient(thread.port) as client:
        create_topic(client, "t", 2)
        for partition in (0, 1):
            fill(client, "t", range(3), partition)
    shutil.move(data_dir / "t-1", tmp_path / "aside")
    (data_dir / "t-1").write_text("a file in the way")
    with BrokerThread(data_dir) as thread, RawClient(thread.port) as client:
        assert offsets(client, "t") == [0, 1, 2]
        refused = client.produce("t", batch_of(b"a"), partition=1)
        assert refused.error_code == ErrorCode.KAFKA_STORAGE_ERROR
        (data_dir / "t-1").unlink()
        shutil.move(tmp_path / "aside", data_dir / "t-1")
        thread.run(thread.broker.replicas.reopen_offline())
        assert client.end_offset("t", 1) == 3
        assert client.produce("t", batch_of(b"a"), partition=1).base_offset == 3


def test_a_listener_that_fails_does_not_keep_the_others_from_a_change(tmp_path: Path) -> None:
    received: list[set[str]] = []

    def fails(*_: object) -> None:
        raise RuntimeError("on purpose")

    def listens(_: object, image: Any) -> None:
        received.append(set(image.topics))

    with BrokerThread(tmp_path / "data") as thread, RawClient(thread.port) as client:
        thread.look(lambda broker: broker.metadata.listen(fails))
        thread.look(lambda broker: broker.metadata.listen(listens))
        create_topic(client, "t")
        assert received == [{"t"}]
        assert thread.look(lambda broker: broker.metadata.failures) == 1
        assert client.produce("t", batch_of(b"a")).error_code == 0


class StuckSyncs(LogFile):
    """Files whose fsync waits while `may_sync` is cleared."""

    may_sync = threading.Event()
    waiting = threading.Semaphore(0)

    def sync(self) -> None:
        if not self.may_sync.is_set():
            self.waiting.release()
            self.may_sync.wait(20)
        super().sync()


def test_a_flush_that_outlives_its_topic_writes_nothing_into_the_next_one_of_the_name(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The producers' snapshot of a rolled segment is written after the fsync, which may take long."""
    data_dir = tmp_path / "data"
    StuckSyncs.may_sync.clear()
    with (
        BrokerThread(data_dir, {"log.flush.scheduler.interval.ms": "20"}, StuckSyncs) as thread,
        RawClient(thread.port) as client,
    ):
        create_topic(client, "t", 1, {"segment_bytes": "1000"})
        fill(client, "t", range(50))
        assert StuckSyncs.waiting.acquire(timeout=20)
        until(lambda: thread.look(lambda broker: broker.flusher._next), "another flush behind the one that is stuck")
        client.ask(DeleteTopicsRequest(topic_names=["t"], timeout_ms=10_000), 4)
        create_topic(client, "t", 1)
        fill(client, "t", range(3))
        StuckSyncs.may_sync.set()
        until(lambda: not thread.look(lambda broker: broker.flusher._running), "the flushes to end")
        assert not list((data_dir / "t-0").glob("*.snapshot"))
        assert not [record for record in caplog.records if record.levelname == "ERROR"], "nothing has failed"
    with BrokerThread(data_dir) as thread, RawClient(thread.port) as client:
        assert client.end_offset("t") == 3
        assert offsets(client, "t") == [0, 1, 2]


def test_an_offline_log_keeps_its_start_and_its_recovery_point(tmp_path: Path) -> None:
    """Otherwise deleted records come back, and damage below the recovery point cuts off all that follows it."""
    data_dir = tmp_path / "data"
    with BrokerThread(data_dir) as thread, RawClient(thread.port) as client:
        create_topic(client, "t", 1)
        fill(client, "t", range(9))
        row = DeleteRecordsPartition(partition_index=0, offset=2)
        topic = DeleteRecordsTopic(name="t", partitions=[row])
        client.ask(DeleteRecordsRequest(topics=[topic], timeout_ms=10_000), 1)
    (segment,) = (data_dir / "t-0").glob("*.log")
    damaged = bytearray(segment.read_bytes())
    damaged[len(damaged) * 4 // 9 + 80] ^= 1  # in the fifth of nine batches
    segment.write_bytes(damaged)
    for ending in ("reopened", "restarted"):
        shutil.move(data_dir / "t-0", tmp_path / "aside")
        (data_dir / "t-0").write_text("a file in the way")
        with BrokerThread(data_dir) as thread, RawClient(thread.port) as client:
            assert client.produce("t", batch_of(b"a")).error_code == ErrorCode.KAFKA_STORAGE_ERROR
            thread.look(lambda broker: broker.housekeeping.checkpoint())
            (data_dir / "t-0").unlink()
            shutil.move(tmp_path / "aside", data_dir / "t-0")
            if ending == "reopened":
                thread.run(thread.broker.replicas.reopen_offline())
                assert (client.list_offset("t", -2).offset, client.end_offset("t")) == (2, 9)
    with BrokerThread(data_dir) as thread, RawClient(thread.port) as client:
        assert (client.list_offset("t", -2).offset, client.end_offset("t")) == (2, 9)
        assert client.fetch("t", 4).error_code == ErrorCode.CORRUPT_MESSAGE
        assert [offset for offset, _ in values_in(client.fetch("t", 5).records)] == [5, 6, 7, 8]


def test_a_topic_may_be_deleted_while_offline_logs_are_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data_dir = tmp_path / "data"
    with BrokerThread(data_dir) as thread, RawClient(thread.port) as client:
        for topic in ("a", "b", "c"):
            create_topic(client, topic, 2)
    for folder in ("a-0", "a-1", "b-0", "b-1", "c-0"):
        shutil.rmtree(data_dir / folder)
        (data_dir / folder).write_text("a file in the way")
    with BrokerThread(data_dir) as thread:

        async def delete_meanwhile() -> None:
            topics = thread.broker.topics
            for folder in ("a-0", "a-1", "b-0", "b-1", "c-0"):
                (data_dir / folder).unlink()
            deleting = [asyncio.ensure_future(topics.delete(topics.get(name))) for name in ("a", "b")]
            await thread.broker.replicas.reopen_offline()
            await asyncio.gather(*deleting)

        make_log = thread.broker.log_dir.make_log

        def take_long(*arguments: Any) -> Any:
            time.sleep(0.05)
            return make_log(*arguments)

        monkeypatch.setattr(thread.broker.log_dir, "make_log", take_long)
        thread.run(delete_meanwhile())
        assert thread.look(lambda broker: broker.replicas.offline) == {}
        assert thread.look(lambda broker: [str(each.name) for each in broker.replicas.all()]) == ["c-1", "c-0"]


def test_a_topic_that_cannot_be_created_leaves_a_folder_that_was_there(tmp_path: Path) -> None:
    with BrokerThread(tmp_path / "data") as thread, RawClient(thread.port) as client:
        folder = tmp_path / "data" / "orders-1"
        folder.mkdir()
        (folder / "notes.txt").write_text("mine")
        (folder / "00000000000000000000.log").mkdir()  # where the log's file would be
        topic = CreatableTopic(name="orders", num_partitions=2, replication_factor=1)
        (result,) = client.ask(CreateTopicsRequest(topics=[topic]), 7).topics
        assert result.error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert (folder / "notes.txt").read_text() == "mine"
        assert not (tmp_path / "data" / "orders-0").exists()
