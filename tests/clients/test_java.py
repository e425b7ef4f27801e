"""The Java client of Apache Kafka, org.apache.kafka:kafka-clients, in an old and a new major version."""

from __future__ import annotations

import pytest

from . import contract
from .contract import TIME_MS, MakeTopic, numbered
from .peers.driven import DrivenPeer
from .peers.installation import JAVA_VERSIONS
from .peers.peer import Code, Place, Refused, read, until
from .peers.record import Record


@pytest.fixture(params=JAVA_VERSIONS)
def peer(request: pytest.FixtureRequest, bootstrap: str) -> DrivenPeer:
    peer: DrivenPeer = request.getfixturevalue(f"java_{request.param.partition('.')[0]}")
    return peer


class TestJava(
    contract.Produces,
    contract.ProducesIdempotently,
    contract.KeepsCompactedTopicsKeyed,
    contract.Reads,
    contract.LooksUpOffsets,
    contract.AdministersTopics,
    contract.ValidatesTopics,
    contract.DeletesRecords,
    contract.DescribesConfigs,
    contract.AltersConfigs,
):
    pass


def test_a_header_may_be_null_and_its_name_may_repeat(peer: DrivenPeer, make_topic: MakeTopic) -> None:
    topic = make_topic()
    record = Record(b"v", headers=(("a", b"1"), ("a", b"2"), ("b", None)), timestamp_ms=TIME_MS)
    peer.produce(topic, 0, [record])
    assert read(peer, topic, 0, 1) == [record]


@pytest.mark.parametrize(("acks", "offsets"), [("0", [-1, -1]), ("1", [0, 1]), ("all", [0, 1])])
def test_the_metadata_of_a_sent_record(peer: DrivenPeer, make_topic: MakeTopic, acks: str, offsets: list[int]) -> None:
    records = [record.to_json() for record in numbered(2)]
    settings = {"codec": "none", "acks": acks, "idempotent": False}
    sent = peer.driver.ask("produce", topic=make_topic(), partition=0, records=records, **settings)
    assert sent == [[offsets[0], TIME_MS], [offsets[1], TIME_MS + 1000]]


def test_the_answer_to_creating_a_topic_describes_it(peer: DrivenPeer, new_name: str) -> None:
    wanted = {"partitions": 2, "replication_factor": 1, "config": {"retention.ms": "60000"}, "validate_only": False}
    created = peer.driver.ask("create_topic", topic=new_name, **wanted)
    assert (created["partitions"], created["replication_factor"]) == (2, 1)
    assert created["retention.ms"] == "60000"
    assert created["id"] != "AAAAAAAAAAAAAAAAAAAAAA"


def test_the_defaults_of_the_broker_fill_in_what_a_new_topic_leaves_out(
    peer: DrivenPeer, bootstrap: str, new_name: str
) -> None:
    wanted = {"partitions": -1, "replication_factor": -1, "config": {}, "validate_only": False}
    created = peer.driver.ask("create_topic", topic=new_name, **wanted)
    assert (created["partitions"], created["replication_factor"]) == (1, len(bootstrap.split(",")))
    assert created["retention.ms"] == "604800000"


def test_a_topic_is_described_by_its_id(peer: DrivenPeer, make_topic: MakeTopic) -> None:
    topic = make_topic()
    assert peer.driver.ask("describe_by_id", topic=topic) == topic


def test_describing_an_unknown_topic_is_refused(peer: DrivenPeer, new_name: str) -> None:
    with pytest.raises(Refused) as refused:
        peer.partition_count(new_name)
    assert refused.value.code == Code.UNKNOWN_TOPIC_OR_PARTITION
    with pytest.raises(Refused) as refused:
        peer.configs(new_name)
    assert refused.value.code == Code.UNKNOWN_TOPIC_OR_PARTITION


def test_the_record_with_the_largest_timestamp_is_found(peer: DrivenPeer, make_topic: MakeTopic) -> None:
    topic = make_topic()
    times = [TIME_MS, TIME_MS + 9, TIME_MS + 5]
    peer.produce(topic, 0, [Record(b"v", timestamp_ms=time_ms) for time_ms in times])
    assert peer.driver.ask("offset", topic=topic, partition=0, at={"kind": "max_timestamp"}) == 1


def test_the_configs_of_a_broker_are_described(peer: DrivenPeer) -> None:
    broker_id = peer.cluster().controller_id
    configs = {name: value for name, value, _ in peer.driver.ask("broker_configs", broker=broker_id)}
    assert configs["num.partitions"] == "1"
    assert configs["message.max.bytes"] == "1048588"


def test_the_log_directories_tell_the_size_of_a_partition(peer: DrivenPeer, make_topic: MakeTopic) -> None:
    topic = make_topic()
    broker_id = peer.cluster().controller_id
    assert peer.driver.ask("log_size", topic=topic, partition=0, broker=broker_id) == 0
    peer.produce(topic, 0, numbered(10))
    assert peer.driver.ask("log_size", topic=topic, partition=0, broker=broker_id) > 100


def test_reading_out_of_range_without_a_reset_policy_is_an_error(peer: DrivenPeer, make_topic: MakeTopic) -> None:
    topic = make_topic()
    peer.produce(topic, 0, numbered(1))
    with peer.open(topic, 0, 99) as reader, pytest.raises(Refused) as refused:
        reader.take(1)
    assert refused.value.code == Code.OFFSET_OUT_OF_RANGE


def test_an_offset_out_of_range_is_reset_to_the_earliest(peer: DrivenPeer, make_topic: MakeTopic) -> None:
    topic = make_topic()
    peer.produce(topic, 0, numbered(5))
    peer.delete_records(topic, 0, before=3)
    start = {"kind": "offset", "value": 1}
    reader = peer.driver.ask("open", topic=topic, partition=0, start=start, reset="earliest")
    try:
        (record,) = peer.driver.ask("take", reader=reader, count=1)
    finally:
        peer.driver.ask("close", reader=reader)
    assert record["offset"] == 3


def test_a_consumer_that_names_an_unknown_topic_creates_it(peer: DrivenPeer, new_name: str) -> None:
    with peer.open(new_name, 0, Place.BEGINNING):
        until(lambda: new_name in peer.topics(), "the topic created on request")
