"""Replays of logs that have holes, lose their beginning, or lose their broker."""

from __future__ import annotations

from pathlib import Path

import pytest
from confluent_kafka import TopicPartition as LibraryPartition
from confluent_kafka.admin import AdminClient

from skylog.client import Admin, Connection, LogEdge, Place, Replay, plan_replay
from skylog.errors import SkylogError
from skylog.testing import BrokerProcess, consume, produce, wait_until

QUICK_CLEANING = {"log.cleaner.backoff.ms": "50", "log.flush.offset.checkpoint.interval.ms": "50"}
COMPACTED = {"cleanup.policy": "compact", "segment.bytes": "2000", "min.cleanable.dirty.ratio": "0.01"}


def prepare(broker: BrokerProcess, start: Place = LogEdge.START, end: Place = LogEdge.END, **options: int) -> Replay:
    connection = Connection(broker.bootstrap)
    admin = Admin(connection)
    plan = plan_replay(admin, admin, "source", "copy", start=start, end=end)
    target = Connection(broker.bootstrap)
    return Replay(plan, connection, target, rate_limit=options.get("rate_limit"), delivery_timeout_s=2)


def values(broker: BrokerProcess, topic: str) -> list[bytes | None]:
    return [message.value for message in consume(broker.bootstrap, topic)]


def test_a_compacted_log_is_replayed_to_its_end_though_offsets_are_missing(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data", QUICK_CLEANING) as broker:
        Admin(Connection(broker.bootstrap)).create_topic("source", 1, configs=COMPACTED)
        for part in range(20):
            produce(broker.bootstrap, "source", [f"v{part}-{n}" for n in range(20)], key="k")
        wait_until(lambda: len(values(broker, "source")) < 200, "compaction")
        holes = prepare(broker, start=0, end=50)
        assert [progress.messages for progress in holes.run()][-1] < 50
        assert holes.is_complete
        everything = prepare(broker)
        assert everything.plan.offset_count == 400
        *_, last = everything.run()
        assert everything.is_complete
        assert 0 < last.messages < 400
        assert values(broker, "copy")[-1] == b"v19-19"


def test_a_range_that_has_been_deleted_meanwhile_is_an_error(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data") as broker:
        produce(broker.bootstrap, "source", map(str, range(10)))
        replay = prepare(broker)
        client = AdminClient({"bootstrap.servers": broker.bootstrap})
        (deleted,) = client.delete_records([LibraryPartition("source", 0, 5)]).values()
        deleted.result(10)
        with pytest.raises(SkylogError, match="source-0 at offset 0"):
            list(replay.run())
        assert replay.progress.messages == 0


def test_a_replay_whose_broker_died_is_continued_from_its_progress(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data") as broker:
        produce(broker.bootstrap, "source", map(str, range(2000)))
        replay = prepare(broker, rate_limit=500)
        running = replay.run()
        while next(running).messages < 100:
            pass
        broker.kill()
        with pytest.raises(SkylogError, match="no broker can be reached"):
            list(running)
        assert not replay.is_complete
        broker.start()
        rest = prepare(broker, start=replay.progress.next_offsets)
        assert rest.plan.ranges != replay.plan.ranges
        list(rest.run())
        found = values(broker, "copy")
        assert sorted(set(found), key=lambda value: int(value or 0)) == [b"%d" % n for n in range(2000)]
        stored = replay.progress.messages
        assert found[:stored] == [b"%d" % n for n in range(stored)]


def test_progress_grows_and_ends_with_everything(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data") as broker:
        produce(broker.bootstrap, "source", map(str, range(1500)))
        replay = prepare(broker, rate_limit=500)
        seen = [(progress.messages, progress.next_offsets[0]) for progress in replay.run()]
        assert len(seen) > 2
        assert seen == sorted(seen)
        assert seen[-1] == (1500, 1500)
        assert replay.is_complete


def test_a_stopped_replay_reports_exactly_what_is_stored(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data") as broker:
        produce(broker.bootstrap, "source", map(str, range(1000)))
        replay = prepare(broker, rate_limit=300)
        for progress in replay.run():
            if progress.messages:
                replay.stop()
        assert not replay.is_complete
        stored = replay.progress.next_offsets[0]
        assert 0 < stored < 1000
        assert values(broker, "copy") == [b"%d" % n for n in range(stored)]
