"""The writer: that one which was fenced writes nothing, whatever it believes."""

from __future__ import annotations

import pytest

from skylog.client import Admin, Connection, OffsetRange, PartitionReader
from skylog.errors import ConfigError
from skylog.model import TopicPartition
from skylog.registry.log.topic import ensure_topic
from skylog.registry.log.writer import NotWrittenError, OutcomeUnknownError, Writer
from skylog.registry.records import Record
from skylog.testing import BrokerProcess


def keys_of(broker: BrokerProcess, topic: str) -> list[bytes | None]:
    partition = TopicPartition(topic, 0)
    end = Admin(broker.bootstrap).offset_ranges([partition])[partition].end_offset
    reader = PartitionReader(Connection(broker.bootstrap), {partition: 0})
    try:
        return [each.key for batch in reader.read_to_end({partition: OffsetRange(0, end)}) for each in batch]
    finally:
        reader.close()


def test_a_fenced_writer_writes_nothing(broker: BrokerProcess, subject: str) -> None:
    connection = Connection(broker.bootstrap)
    ensure_topic(connection, subject)
    old = Writer(connection.another(), subject, subject)
    old.open()
    assert old.append([Record(b"a", b"1")]) == 1
    new = Writer(connection.another(), subject, subject)
    new.open()
    with pytest.raises((NotWrittenError, OutcomeUnknownError)):
        old.append([Record(b"b", b"2")])
    new.append([Record(b"c", b"3"), Record(b"d", None)])
    assert keys_of(broker, subject) == [b"a", b"c", b"d"]
    old.close()
    new.close()


def test_a_writer_that_is_fenced_amid_a_transaction_can_be_closed(broker: BrokerProcess, subject: str) -> None:
    connection = Connection(broker.bootstrap)
    ensure_topic(connection, subject)
    old, new = (Writer(connection.another(), subject, subject) for _ in range(2))
    old.open()
    old._producer.begin_transaction()
    old._producer.produce(subject, b"1", b"a", partition=0)
    new.open()
    with pytest.raises((NotWrittenError, OutcomeUnknownError)):
        old._commit()
    old.close()
    new.close()


@pytest.mark.parametrize(
    ("partitions", "policy", "word"), [(2, "compact", "--topic"), (1, "delete", "skylog topics alter")]
)
def test_a_topic_that_would_lose_schemas_is_refused_with_the_fix(
    broker: BrokerProcess, subject: str, partitions: int, policy: str, word: str
) -> None:
    Admin(broker.bootstrap).create_topic(subject, partitions, 1, {"cleanup.policy": policy})
    with pytest.raises(ConfigError, match=word):
        ensure_topic(Connection(broker.bootstrap), subject)
