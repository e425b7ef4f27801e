"""A micro-batch in a transaction is seen whole or not at all, and once, wherever the process that sent it ended."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from skylog.client import Admin
from skylog.protocol.end_txn import EndTxnRequest
from skylog.protocol.schema import Message
from skylog.spark.errors import OptionError
from skylog.spark.wire import BrokerConnection
from skylog.spark.writing.delivery import deliver, deliver_micro_batch
from skylog.spark.writing.manifest import ManifestFile
from skylog.spark.writing.publisher import RecordTooLargeError
from skylog.spark.writing.transaction import TransactionLostError
from skylog.spark.writing.write_options import write_options
from skylog.testing import BrokerProcess, consume, produce
from tests.proof import some

from .sink_driver import PARTITIONS, PER_BATCH, Killed, Sink, killed_at
from .sink_staged import sink_options, stage_values


@pytest.fixture
def topic(skylog_admin: Admin) -> str:
    name = f"sink-{uuid.uuid4().hex[:8]}"
    skylog_admin.create_topic(name, PARTITIONS)
    return name


@pytest.fixture
def query(tmp_path: Path) -> Path:
    """The staging directory of a query, whose name is the id of the query."""
    directory = tmp_path / str(uuid.uuid4())
    directory.mkdir()
    return directory


@pytest.fixture
def sink(skylog_broker: BrokerProcess, topic: str, query: Path) -> Sink:
    return Sink(skylog_broker.bootstrap, topic, query)


@pytest.mark.parametrize("method", some(["receive", "send"], usual=1))
def test_a_micro_batch_is_whole_and_once_wherever_its_driver_is_killed(sink: Sink, query: Path, method: str) -> None:
    assert sink.write_under_kills(method) > 15
    assert not list(query.glob("*.staged"))


def before_request(monkeypatch: pytest.MonkeyPatch, kind: type[Message], action: Callable[[], None]) -> None:
    """Do something once, before the first request of a kind is sent."""
    original = BrokerConnection.send
    is_done = False

    def send(self: BrokerConnection, request: Message, version: int) -> None:
        nonlocal is_done
        if isinstance(request, kind) and not is_done:
            is_done = True
            action()
        original(self, request, version)

    monkeypatch.setattr(BrokerConnection, "send", send)


def test_a_driver_that_was_replaced_cannot_commit(sink: Sink, monkeypatch: pytest.MonkeyPatch) -> None:
    before_request(monkeypatch, EndTxnRequest, lambda: sink.write(0))
    with pytest.raises(TransactionLostError, match="another driver runs the same query"):
        sink.write(0)
    assert sink.committed() == {0: PER_BATCH}


def test_micro_batches_without_rows_and_earlier_ones_write_nothing(sink: Sink, query: Path) -> None:
    for batch_id in (4, 4, 3):
        sink.write(batch_id)
    deliver_micro_batch(sink_options("127.0.0.1:9", transactional=True), query, 5, [stage_values(query, "t", [])])
    assert sink.committed() == {4: PER_BATCH}
    assert not list(query.glob("*.staged"))


def test_a_query_that_was_interrupted_without_transactions_goes_on_with_them(sink: Sink, query: Path) -> None:
    with pytest.MonkeyPatch.context() as patch:
        killed_at(patch, BrokerConnection, "receive", 8, after=True)
        with pytest.raises(Killed):
            sink.write(0, transactional=False)
    manifest = ManifestFile(query).read()
    assert manifest is not None
    assert not manifest.is_done
    for batch_id in (0, 1):
        sink.write(batch_id)
    assert sink.committed() == {0: PER_BATCH, 1: PER_BATCH}


def test_a_batch_write_is_one_transaction(skylog_broker: BrokerProcess, topic: str, tmp_path: Path) -> None:
    options = sink_options(skylog_broker.bootstrap, transactional=True, max_request_size="160")
    with pytest.MonkeyPatch.context() as patch:
        killed_at(patch, BrokerConnection, "receive", 12, after=True)
        with pytest.raises(Killed):
            deliver(options, [stage_values(tmp_path, topic, [b"lost"] * 100, partitions=PARTITIONS)])
    assert consume(skylog_broker.bootstrap, topic) == []
    other = f"{topic}-2"  # the first one is held back until the transaction has timed out
    Admin(skylog_broker.bootstrap).create_topic(other, PARTITIONS)
    deliver(options, [stage_values(tmp_path, other, [b"kept"] * 100, partitions=PARTITIONS)])
    assert len(consume(skylog_broker.bootstrap, other)) == 100


def test_a_write_that_fails_is_aborted_at_once(
    skylog_broker: BrokerProcess, skylog_admin: Admin, topic: str, tmp_path: Path
) -> None:
    skylog_admin.alter_configs(topic, {"max.message.bytes": "300"})
    options = sink_options(skylog_broker.bootstrap, transactional=True)
    files = [stage_values(tmp_path, topic, [b"a", b"x" * 1000])]
    with pytest.raises(RecordTooLargeError):
        deliver(options, files)
    produce(skylog_broker.bootstrap, topic, [b"after"], partition=0)
    assert [message.value for message in consume(skylog_broker.bootstrap, topic, 1)] == [b"after"]


def test_the_id_follows_from_the_query_and_cannot_be_set() -> None:
    given: dict[str, Any] = {"kafka.bootstrap.servers": "127.0.0.1:9", "kafka.transactional.id": "mine"}
    with pytest.raises(OptionError, match="set the option transactional"):
        write_options(given)
    assert write_options({"kafka.bootstrap.servers": "h:1", "transactional": "true"}).transactional
