"""What one client wrote, every other client reads equal, whatever the codec.

Each writer has one topic with a partition for each codec. The broker stores what it gets, so a reader here meets the
writer's own way of compressing: framing of lz4 and snappy, zstd with or without a content size.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from contextlib import closing

import pytest

from .conftest import BROKER_DEFAULT
from .contract import TIME_MS, TOMBSTONE
from .peers.aiokafka_peer import AiokafkaPeer
from .peers.confluent import ConfluentPeer
from .peers.kafka_python import KafkaPythonPeer
from .peers.peer import CODECS, Peer, read, until
from .peers.record import Record
from .peers.stored_batches import assert_stored_with

# @platformatic/kafka decodes bare snappy only, not the blocks with a header that Java's library and others write.
FRAME_SNAPPY = ("kafka_python", "aiokafka", "java_3", "java_4")
PEERS = ("confluent", "kafka_python", "aiokafka", "kcat", "kafkajs", "platformatic", "java_3", "java_4", "franz")

# Text only, since kcat's JSON output wants UTF-8; the length makes compressing worth while for every client.
RECORDS = [
    Record(b"hello " * 50, b"k1", (("from", b"here"), ("empty", b"")), TIME_MS),
    Record("grüße".encode() * 30, b"k2", (("from", b"here"), ("empty", b"")), TIME_MS + 5),
    Record(b"hello " * 200, None, (("from", b"here"), ("empty", b"")), TIME_MS + 3),
    Record(None, TOMBSTONE.key, (("from", b"here"), ("empty", b"")), TIME_MS + 7),
]


@pytest.fixture(scope="module")
def kafka_python(bootstrap: str) -> Iterator[KafkaPythonPeer]:
    with closing(KafkaPythonPeer(bootstrap)) as peer:
        yield peer


@pytest.fixture(scope="module")
def aiokafka(bootstrap: str) -> Iterator[AiokafkaPeer]:
    with closing(AiokafkaPeer(bootstrap)) as peer:
        yield peer


@pytest.fixture(scope="module")
def write(confluent: ConfluentPeer) -> Callable[[str, Peer], str]:
    """Write a client's topic on first use."""
    run = uuid.uuid4().hex[:8]

    written: dict[str, str] = {}

    def write_once(name: str, peer: Peer) -> str:
        if name in written:
            return written[name]
        topic = f"matrix-{run}-{name}"
        confluent.create_topic(topic, len(CODECS), BROKER_DEFAULT)
        until(lambda: topic in confluent.topics(), "the new topic in the metadata")
        for partition, codec in enumerate(CODECS):
            if codec in peer.codecs:
                peer.produce(topic, partition, RECORDS, codec=codec)
        written[name] = topic
        return topic

    return write_once


def without_time(records: list[Record]) -> list[Record]:
    return [Record(record.value, record.key, record.headers) for record in records]


def shared_codecs(writer: str, writing: Peer, reader: str, reading: Peer) -> list[str]:
    unreadable = {"snappy"} if reader == "platformatic" and writer in FRAME_SNAPPY else set()
    return [codec for codec in CODECS if codec in writing.codecs and codec in {*reading.codecs} - unreadable]


@pytest.mark.parametrize("reader", PEERS)
@pytest.mark.parametrize("writer", PEERS)
def test_what_one_client_wrote_another_reads_equal(
    request: pytest.FixtureRequest, write: Callable[[str, Peer], str], writer: str, reader: str
) -> None:
    writing: Peer = request.getfixturevalue(writer)
    reading: Peer = request.getfixturevalue(reader)
    topic = write(writer, writing)
    codecs = shared_codecs(writer, writing, reader, reading)
    found = {codec: read(reading, topic, CODECS.index(codec), len(RECORDS)) for codec in codecs}
    if writer == "kcat":  # it writes the time of the call
        found = {codec: without_time(records) for codec, records in found.items()}
        assert found == dict.fromkeys(codecs, without_time(RECORDS))
    else:
        assert found == dict.fromkeys(codecs, RECORDS)


@pytest.mark.parametrize("writer", PEERS)
def test_every_partition_of_the_matrix_holds_its_codec(
    request: pytest.FixtureRequest, write: Callable[[str, Peer], str], bootstrap: str, writer: str
) -> None:
    writing: Peer = request.getfixturevalue(writer)
    topic = write(writer, writing)
    for partition, codec in enumerate(CODECS):
        if codec in writing.codecs:
            assert_stored_with(codec, bootstrap, topic, partition)
