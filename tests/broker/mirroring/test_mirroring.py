"""A mirror between two brokers: byte-identical batches, the same offsets, no writes until it is promoted."""

from __future__ import annotations

import pytest

from skylog.client import Consumer, ConsumerGroups, Producer
from skylog.client.connection import Connection
from skylog.errors import ErrorCode, KafkaError, SkylogError
from skylog.model import TopicPartition
from skylog.records import Codec
from skylog.testing import consume, produce, wait_until

from ..process import BrokerProcess
from ..raw import RawClient, batch_of
from .sites import admin, batches, caught_up, mirrors, new_name

COMPRESSED = batch_of(*[b"compress me" * 20] * 50, codec=Codec.GZIP)


def test_batches_are_copied_byte_for_byte_at_their_offsets(west: BrokerProcess, east: BrokerProcess) -> None:
    topic, name = new_name(), new_name("mirror")
    admin(west.bootstrap).create_topic(topic, partitions=3, configs={"retention.ms": "123456789"})
    with RawClient(west.port) as client:
        for partition in range(3):
            client.produce(topic, batch_of(b"a", b"b", b"c"), partition=partition)
            client.produce(topic, COMPRESSED, partition=partition)
    mirrors(east.bootstrap).create(name, west.bootstrap, [topic])
    caught_up(east.bootstrap, name, topic, offset=53)
    for partition in range(3):
        assert batches(east.port, topic, partition) == batches(west.port, topic, partition)
    described = admin(east.bootstrap).describe_topic(topic)
    assert len(described.partitions) == 3
    produce(west.bootstrap, topic, ["later"], partition=1)
    wait_until(lambda: [each.value for each in consume(east.bootstrap, topic)].count(b"later") == 1, "the new message")
