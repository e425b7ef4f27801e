"""@platformatic/kafka 1.x on Node.

Reading uses the consumer's fetch() directly (see `platformatic/driver.mjs`): its stream needs a group.
"""

from __future__ import annotations

import pytest

from . import contract
from .contract import MakeTopic, numbered
from .peers.driven import DrivenPeer
from .peers.peer import Code, Refused


@pytest.fixture
def peer(platformatic: DrivenPeer) -> DrivenPeer:
    return platformatic


class TestPlatformatic(
    contract.Produces,
    contract.ProducesIdempotently,
    contract.KeepsCompactedTopicsKeyed,
    contract.Reads,
    contract.LooksUpOffsets,
    contract.AdministersTopics,
    contract.DeletesRecords,
    contract.DescribesConfigs,
    contract.ReplacesConfigs,
    contract.AltersConfigs,
):
    pass


def test_fetching_out_of_range_is_refused(peer: DrivenPeer, make_topic: MakeTopic) -> None:
    topic = make_topic()
    peer.produce(topic, 0, numbered(1))
    with peer.open(topic, 0, 99) as reader, pytest.raises(Refused) as refused:
        reader.take(1)
    assert refused.value.code == Code.OFFSET_OUT_OF_RANGE
