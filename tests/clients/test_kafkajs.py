"""KafkaJS 2.2.4 on Node.

Reading uses KafkaJS's cluster and broker classes directly (see `kafkajs/driver.mjs`): its consumer needs a group.
"""

from __future__ import annotations

import pytest

from . import contract
from .contract import TIME_MS, MakeTopic, numbered
from .peers.driven import DrivenPeer
from .peers.peer import Code, Refused, read
from .peers.record import Record


@pytest.fixture
def peer(kafkajs: DrivenPeer) -> DrivenPeer:
    return kafkajs


class TestKafkaJS(
    contract.Produces,
    contract.ProducesIdempotently,
    contract.KeepsCompactedTopicsKeyed,
    contract.Reads,
    contract.LooksUpOffsets,
    contract.AdministersTopics,
    contract.DeletesRecords,
    contract.DescribesConfigs,
    contract.ReplacesConfigs,
):
    pass


def test_a_header_name_may_repeat(peer: DrivenPeer, make_topic: MakeTopic) -> None:
    topic = make_topic()
    record = Record(b"v", headers=(("a", b"1"), ("a", b"2")), timestamp_ms=TIME_MS)
    peer.produce(topic, 0, [record])
    assert read(peer, topic, 0, 1) == [record]


def test_the_admin_finds_offsets_by_timestamp_and_falls_back_to_the_end(
    peer: DrivenPeer, make_topic: MakeTopic
) -> None:
    topic = make_topic(partitions=2)
    peer.produce(topic, 0, numbered(5))
    peer.produce(topic, 1, numbered(2))
    found = peer.driver.ask("offsets_by_timestamp", topic=topic, timestamp=TIME_MS + 2500)
    assert found == {"0": 3, "1": 2}


def test_the_admin_reports_the_watermarks(peer: DrivenPeer, make_topic: MakeTopic) -> None:
    topic = make_topic(partitions=2)
    peer.produce(topic, 1, numbered(5))
    peer.delete_records(topic, 1, before=2)
    assert peer.driver.ask("watermarks", topic=topic) == {"0": [0, 0], "1": [2, 5]}


def test_describing_the_configs_of_an_unknown_topic_is_refused(peer: DrivenPeer, new_name: str) -> None:
    with pytest.raises(Refused) as refused:
        peer.configs(new_name)
    assert refused.value.code == Code.UNKNOWN_TOPIC_OR_PARTITION


def test_fetching_out_of_range_is_refused(peer: DrivenPeer, make_topic: MakeTopic) -> None:
    topic = make_topic()
    peer.produce(topic, 0, numbered(1))
    with peer.open(topic, 0, 99) as reader, pytest.raises(Refused) as refused:
        reader.take(1)
    assert refused.value.code == Code.OFFSET_OUT_OF_RANGE
