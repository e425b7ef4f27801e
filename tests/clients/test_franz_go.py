"""franz-go (github.com/twmb/franz-go), a client in Go with its own implementation of the protocol."""

from __future__ import annotations

import pytest

from . import contract
from .contract import TIME_MS, MakeTopic, numbered
from .peers.driven import DrivenPeer
from .peers.peer import Code, Refused, read
from .peers.record import Record


@pytest.fixture
def peer(franz: DrivenPeer) -> DrivenPeer:
    return franz


class TestFranzGo(
    contract.Produces,
    contract.ProducesIdempotently,
    contract.KeepsCompactedTopicsKeyed,
    contract.Reads,
    contract.LooksUpOffsets,
    contract.AdministersTopics,
    contract.ValidatesTopics,
    contract.DeletesRecords,
    contract.DescribesConfigs,
    contract.ReplacesConfigs,
    contract.AltersConfigs,
):
    pass


def test_a_header_may_be_null_and_its_name_may_repeat(peer: DrivenPeer, make_topic: MakeTopic) -> None:
    topic = make_topic()
    record = Record(b"v", headers=(("a", b"1"), ("a", b"2"), ("b", None)), timestamp_ms=TIME_MS)
    peer.produce(topic, 0, [record])
    assert read(peer, topic, 0, 1) == [record]


def test_fetching_out_of_range_is_refused(peer: DrivenPeer, make_topic: MakeTopic) -> None:
    topic = make_topic()
    peer.produce(topic, 0, numbered(1))
    with peer.open(topic, 0, 99) as reader, pytest.raises(Refused) as refused:
        reader.take(1)
    assert refused.value.code == Code.OFFSET_OUT_OF_RANGE
