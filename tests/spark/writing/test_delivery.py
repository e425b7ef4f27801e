"""A micro-batch is in the log once, wherever the process that sent it ended."""

from __future__ import annotations

import threading
import uuid
from pathlib import Path

import pytest

from skylog.client import Admin
from skylog.spark.wire import BrokerConnection
from skylog.spark.writing import manifest as manifests
from skylog.spark.writing.delivery import abandon_micro_batch, deliver, deliver_micro_batch
from skylog.spark.writing.manifest import ManifestFile
from skylog.testing import BrokerProcess, consume
from tests.broker.process import BrokerThread
from tests.present import present

from .sink_driver import Killed, killed_at
from .sink_staged import sink_options, stage_values

VALUES = [b"%04d" % number for number in range(300)]


@pytest.fixture
def topic(skylog_admin: Admin) -> str:
    name = f"sink-{uuid.uuid4().hex[:8]}"
    skylog_admin.create_topic(name, 3)
    return name


def values(broker: BrokerProcess, topic: str) -> list[bytes]:
    return sorted(present(message.value) for message in consume(broker.bootstrap, topic))


CRASHES = [
    *[(ManifestFile, "write", number, after) for number in (1, 2) for after in (False, True)],
    *[(BrokerConnection, "send", number, after) for number in (5, 9, 14, 20) for after in (False, True)],
    *[(BrokerConnection, "receive", number, after) for number in (8, 13, 19) for after in (False, True)],
]


@pytest.mark.parametrize(("owner", "method", "number", "after"), CRASHES)
def test_an_interrupted_micro_batch_is_finished_by_the_next_attempt(
    skylog_broker: BrokerProcess, topic: str, tmp_path: Path, owner: type, method: str, number: int, after: bool
) -> None:
    options = sink_options(skylog_broker.bootstrap, max_request_size="160")
    deliver_micro_batch(options, tmp_path, 0, [stage_values(tmp_path, topic, [b"before"], batch_id=0)])
    with pytest.MonkeyPatch.context() as patch:
        killed_at(patch, owner, method, number, after=after)
        files = [stage_values(tmp_path, topic, part, partitions=3, batch_id=1) for part in (VALUES[:200], VALUES[200:])]
        with pytest.raises(Killed):
            deliver_micro_batch(options, tmp_path, 1, files)
    # The second run divides the same rows in another way, as a second run may.
    again = stage_values(tmp_path, topic, VALUES, partitions=2, batch_id=1)
    deliver_micro_batch(options, tmp_path, 1, [again])
    deliver_micro_batch(options, tmp_path, 2, [stage_values(tmp_path, topic, [b"then"], partitions=2, batch_id=2)])
    assert values(skylog_broker, topic) == sorted([b"before", *VALUES, b"then"])
    assert not list(tmp_path.glob("*.staged"))


def test_an_interrupted_micro_batch_is_finished_even_if_the_broker_has_forgotten_its_producer(tmp_path: Path) -> None:
    with BrokerThread(tmp_path / "data") as broker:
        bootstrap, staging = f"127.0.0.1:{broker.port}", tmp_path / "staging"
        Admin(bootstrap).create_topic("t", 1)
        options = sink_options(bootstrap, max_request_size="160")
        with pytest.MonkeyPatch.context() as patch:
            killed_at(patch, BrokerConnection, "receive", 20, after=True)
            with pytest.raises(Killed):
                deliver_micro_batch(options, staging, 1, [stage_values(staging, "t", VALUES, batch_id=1)])
        assert broker.look(lambda inside: inside.replicas.leader("t", 0).log.producers.expire(1 << 62)) == 1
        deliver_micro_batch(options, staging, 1, [stage_values(staging, "t", VALUES, batch_id=1)])
        assert [message.value for message in consume(bootstrap, "t")] == VALUES


def test_a_micro_batch_that_is_done_is_not_sent_again(skylog_broker: BrokerProcess, topic: str, tmp_path: Path) -> None:
    options = sink_options(skylog_broker.bootstrap)
    for batch_id in (4, 4, 3):
        deliver_micro_batch(options, tmp_path, batch_id, [stage_values(tmp_path, topic, VALUES, batch_id=batch_id)])
    assert values(skylog_broker, topic) == VALUES


def test_two_processes_with_the_same_micro_batch_send_it_once(
    skylog_broker: BrokerProcess, topic: str, tmp_path: Path
) -> None:
    options = sink_options(skylog_broker.bootstrap, max_request_size="160")
    files = [stage_values(tmp_path, topic, VALUES, partitions=3, batch_id=1) for _ in range(4)]
    threads = [threading.Thread(target=deliver_micro_batch, args=(options, tmp_path, 1, [file])) for file in files]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert values(skylog_broker, topic) == VALUES


def test_abandoning_keeps_what_was_begun_to_be_sent(skylog_broker: BrokerProcess, topic: str, tmp_path: Path) -> None:
    options = sink_options(skylog_broker.bootstrap, max_request_size="160")
    begun = stage_values(tmp_path, topic, VALUES, batch_id=1)
    with pytest.MonkeyPatch.context() as patch:
        killed_at(patch, BrokerConnection, "receive", 8, after=True)
        with pytest.raises(Killed):
            deliver_micro_batch(options, tmp_path, 1, [begun])
    unused = stage_values(tmp_path, topic, VALUES, batch_id=1)
    abandon_micro_batch(tmp_path, 1)
    assert Path(begun.path).exists()
    assert not Path(unused.path).exists()
    deliver_micro_batch(options, tmp_path, 1, [stage_values(tmp_path, topic, VALUES, batch_id=1)])
    assert values(skylog_broker, topic) == VALUES
    abandon_micro_batch(tmp_path, 2)
    assert not list(tmp_path.glob("*.staged"))


def test_micro_batches_go_on_with_one_producer_until_it_has_been_idle(
    skylog_broker: BrokerProcess, topic: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = sink_options(skylog_broker.bootstrap)
    producers = []
    for batch_id in range(4):
        if batch_id == 3:
            monkeypatch.setattr(manifests, "PRODUCER_IDLE_MS", 0)
        file = stage_values(
            tmp_path, topic, VALUES[batch_id * 75 : batch_id * 75 + 75], partitions=2, batch_id=batch_id
        )
        deliver_micro_batch(options, tmp_path, batch_id, [file])
        stored = ManifestFile(tmp_path).read()
        assert stored is not None
        producers.append(stored.producer.producer_id)
    assert producers[0] == producers[1] == producers[2] != producers[3]
    assert values(skylog_broker, topic) == VALUES


def test_a_batch_job_removes_its_files(skylog_broker: BrokerProcess, topic: str, tmp_path: Path) -> None:
    files = [stage_values(tmp_path, topic, VALUES, partitions=3), stage_values(tmp_path, topic, [])]
    deliver(sink_options(skylog_broker.bootstrap), files)
    assert values(skylog_broker, topic) == VALUES
    assert not list(tmp_path.iterdir())


def test_a_stream_whose_manifest_is_in_a_temporary_directory_is_warned_once(
    skylog_broker: BrokerProcess, topic: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    options = sink_options(skylog_broker.bootstrap)
    for batch_id in range(2):
        deliver_micro_batch(options, tmp_path, batch_id, [stage_values(tmp_path, topic, [b"a"], batch_id=batch_id)])
    assert [record.message for record in caplog.records if "stagingLocation" in record.message] == [
        f"{tmp_path} is a temporary directory: if it is lost, or the query continues on another machine, an "
        "interrupted micro-batch is written twice; set the option stagingLocation to a persistent directory"
    ]
