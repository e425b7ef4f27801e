"""kcat 1.7, the command line client, as Debian packages it over librdkafka 2.0.

kcat has no admin requests and sets neither the time of a record nor more than one set of headers per call, so what it
writes is checked here in its own terms; the groups of promises about reading apply through a topic others wrote.
"""

from __future__ import annotations

import json
import time

import pytest

from tests.present import present

from . import contract
from .contract import TIME_MS, MakeTopic, numbered
from .peers.confluent import ConfluentPeer
from .peers.kcat import KcatPeer
from .peers.peer import CODECS, At, Code, Place, Position, Refused, Tail, read
from .peers.record import Record
from .peers.stored_batches import assert_stored_with, stored_batches


@pytest.fixture
def peer(kcat: KcatPeer) -> KcatPeer:
    return kcat


def contents(records: list[Record]) -> list[tuple[bytes | None, bytes | None]]:
    return [(record.key, record.value) for record in records]


@pytest.mark.parametrize("acks", ["0", "1", "all"])
@pytest.mark.parametrize("codec", CODECS)
def test_what_kcat_writes_comes_back_and_lies_in_the_log_with_its_codec(
    peer: KcatPeer, make_topic: MakeTopic, bootstrap: str, codec: str, acks: str
) -> None:
    topic = make_topic()
    # Equal lines: an older librdkafka keeps a batch uncompressed when compressing would not make it smaller.
    records = [Record(b"the same again", b"key")] * 20
    before_ms = int(time.time() * 1000)
    peer.produce(topic, 0, records, codec=codec, acks=acks)
    found = read(peer, topic, 0, 20)
    assert contents(found) == contents(records)
    assert [record.offset for record in found] == list(range(20))
    assert all(before_ms <= present(record.timestamp_ms) <= time.time() * 1000 + 1 for record in found)
    assert_stored_with(codec, bootstrap, topic, 0)


def test_an_idempotent_producer_writes_once_under_its_producer_id(
    peer: KcatPeer, make_topic: MakeTopic, bootstrap: str
) -> None:
    topic = make_topic()
    peer.produce(topic, 0, numbered(30), idempotent=True)
    assert contents(read(peer, topic, 0, 30)) == contents(numbered(30))
    assert all(batch.producer_id >= 0 for batch in stored_batches(bootstrap, topic, 0))


def test_null_keys_null_values_and_headers(peer: KcatPeer, make_topic: MakeTopic) -> None:
    topic = make_topic()
    headers = (("a", b"1"), ("b", b""), ("c", None))
    records = [Record(b"v", None, headers), Record(None, b"k", headers)]
    peer.produce(topic, 0, records)
    found = read(peer, topic, 0, 2)
    assert contents(found) == contents(records)
    assert [record.headers for record in found] == [headers, headers]


@pytest.mark.parametrize(
    ("start", "first"),
    [(Place.BEGINNING, 0), (0, 0), (7, 7), (Tail(3), 7), (At(TIME_MS + 4000), 4), (At(TIME_MS + 4001), 5)],
    ids=str,
)
def test_reading_starts_at_the_position(
    peer: KcatPeer, confluent: ConfluentPeer, make_topic: MakeTopic, start: Position, first: int
) -> None:
    topic = make_topic()
    confluent.produce(topic, 0, numbered(10), codec="zstd")
    assert read(peer, topic, 0, 10 - first, start) == numbered(10 - first, first)


def test_reading_between_two_timestamps_ends_by_itself(
    peer: KcatPeer, confluent: ConfluentPeer, make_topic: MakeTopic
) -> None:
    topic = make_topic()
    confluent.produce(topic, 0, numbered(10))
    window = ["-o", f"s@{TIME_MS + 2000}", "-o", f"e@{TIME_MS + 5000}"]
    lines = peer.run("-C", "-t", topic, "-p", "0", *window, "-f", "%o %k %s\n").splitlines()
    assert lines == [f"{n} {n} value {n}" for n in range(2, 5)]


def test_reading_a_topic_to_its_end_stops_with_e(
    peer: KcatPeer, confluent: ConfluentPeer, make_topic: MakeTopic
) -> None:
    topic = make_topic(partitions=3)
    for partition in range(3):
        confluent.produce(topic, partition, numbered(4, first=10 * partition))
    lines = peer.run("-C", "-t", topic, "-e", "-q", "-o", "beginning", "-f", "%p %s\n").splitlines()
    assert sorted(lines) == sorted(f"{p} value {10 * p + n}" for p in range(3) for n in range(4))


class TestKcat(contract.LooksUpOffsets):
    """kcat -Q; the records it looks up are written with their times by another client."""

    @pytest.fixture
    def peer(self, kcat: KcatPeer, confluent: ConfluentPeer, monkeypatch: pytest.MonkeyPatch) -> KcatPeer:
        monkeypatch.setattr(kcat, "produce", confluent.produce)
        return kcat

    def test_a_reader_at_the_end_sees_only_what_comes_later(self, peer: KcatPeer, make_topic: MakeTopic) -> None:
        topic = make_topic()
        peer.produce(topic, 0, numbered(5))
        with peer.open(topic, 0, Place.END) as reader:
            peer.produce(topic, 0, numbered(2, first=5))
            assert reader.take(2) == numbered(2, first=5)


def test_metadata_lists_brokers_topics_and_partitions(peer: KcatPeer, make_topic: MakeTopic, bootstrap: str) -> None:
    topic = make_topic(partitions=2)
    metadata = json.loads(peer.run("-L", "-J", "-t", topic))
    assert {broker["name"] for broker in metadata["brokers"]} == set(bootstrap.split(","))
    assert metadata["controllerid"] in [broker["id"] for broker in metadata["brokers"]]
    (described,) = metadata["topics"]
    assert described["topic"] == topic
    assert sorted(partition["partition"] for partition in described["partitions"]) == [0, 1]
    assert {partition["leader"] for partition in described["partitions"]} <= {
        broker["id"] for broker in metadata["brokers"]
    }
    assert all(partition["isrs"] for partition in described["partitions"])


def test_producing_to_an_unknown_topic_creates_it(peer: KcatPeer, new_name: str) -> None:
    peer.produce(new_name, 0, numbered(2))
    assert contents(read(peer, new_name, 0, 2)) == contents(numbered(2))


def test_a_record_above_max_message_bytes_is_refused(peer: KcatPeer, make_topic: MakeTopic) -> None:
    topic = make_topic(config={"max.message.bytes": "2000"})
    with pytest.raises(Refused) as refused:
        peer.produce(topic, 0, [Record(b"x" * 5000)])
    assert refused.value.code == Code.MESSAGE_TOO_LARGE


def test_producing_to_an_invalid_name_is_refused(peer: KcatPeer) -> None:
    with pytest.raises(Refused) as refused:
        peer.produce("not/valid", 0, [Record(b"v")])
    assert refused.value.code == Code.INVALID_TOPIC_EXCEPTION


def test_reading_an_unknown_topic_is_refused(peer: KcatPeer, new_name: str) -> None:
    with pytest.raises(Refused) as refused:
        peer.run("-C", "-t", new_name, "-p", "0", "-e", "-X", "allow.auto.create.topics=false")
    assert refused.value.code == Code.UNKNOWN_TOPIC_OR_PARTITION
