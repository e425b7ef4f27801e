"""The fast path for requests like the previous one gives the same responses and stored bytes as the general path.

One broker gets a random stream of produce requests in random pieces and may use the fast path. The other gets the same
requests one by one, under a client id that is too long for it.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, cast

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from skylog.broker.metrics.requests import Requests
from skylog.broker.producer_lanes import _MAX_KEY_BYTES, ProducerLanes
from skylog.clock import SystemClock
from skylog.net import Connection
from skylog.protocol.frames import request_frame
from skylog.protocol.headers import RequestHeader
from skylog.protocol.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from skylog.records import Codec
from tests.present import present
from tests.proof import IS_FULL, proof

from .conftest import create_topic
from .process import BrokerProcess, until
from .raw import RawClient, batch_of

TOO_LONG = "x" * (_MAX_KEY_BYTES + 1)  # longer than the part of a request that is remembered
MAX_MESSAGE_BYTES = 2000
PARTITIONS = 2
CONFIGS: list[dict[str, str]] = [
    {},
    {},
    {"segment_bytes": "1000"},
    {"compression_type": "zstd"},
    {"flush_messages": "2"},
]
WITHOUT_SHRINKING = (Phase.explicit, Phase.reuse, Phase.generate)  # a response that is missing takes 20 s each time
_topics = itertools.count()


@dataclass(frozen=True)
class Sent:
    """One request. Those of a group differ only in their batches."""

    group: int
    version: int
    client_id: str | None
    request: ProduceRequest

    def frame(self, correlation_id: int, client_id: str | None) -> bytes:
        return bytes(request_frame(RequestHeader(0, self.version, correlation_id, client_id), self.request))

    @property
    def is_answered(self) -> bool:
        return self.request.acks != 0


# -- batches


def _corrupt(batch: bytearray) -> bytearray:
    batch[-1] ^= 1
    return batch


def _of_magic(batch: bytearray, magic: int) -> bytearray:
    batch[16] = magic
    return batch


def _lying(batch: bytearray) -> bytearray:
    batch[11] ^= 1  # the last byte of its length
    return batch


_values = st.lists(st.sampled_from([b"", b"value", b"longer" * 30]), min_size=1, max_size=3)
_codecs = st.sampled_from([Codec.NONE, Codec.NONE, Codec.GZIP, Codec.ZSTD])
_plain = st.builds(lambda values, codec: batch_of(*values, codec=codec), _values, _codecs)
_idempotent = st.builds(
    lambda producer, epoch, sequence, values, transactional: batch_of(
        *values, producer_id=producer, producer_epoch=epoch, base_sequence=sequence, transactional=transactional
    ),
    st.integers(1, 2),
    st.integers(0, 1),
    st.integers(0, 6),
    _values,
    st.sampled_from([False, False, True]),
)
_sound = st.one_of(_plain, _plain, _idempotent)
_unsound = st.one_of(
    _sound.map(_corrupt),
    _sound.map(_lying),
    st.builds(_of_magic, _sound, st.sampled_from([0, 1, 3])),
    st.builds(lambda first, second: first + second, _sound, _sound),
    st.builds(lambda batch, size: batch[:size], _sound, st.integers(0, 80)),
    st.just(batch_of(b"x" * MAX_MESSAGE_BYTES)),
    st.just(batch_of(b"x", producer_id=1, producer_epoch=0, transactional=True)),
    st.builds(lambda transactional: batch_of(b"x", control=True, transactional=transactional), st.booleans()),
    st.none(),
)


# -- requests


def _request(topic: str, acks: int, rows: list[tuple[int, Any]]) -> ProduceRequest:
    data = [PartitionProduceData(index=index, records=None if it is None else bytes(it)) for index, it in rows]
    return ProduceRequest(acks=acks, timeout_ms=10_000, topic_data=[TopicProduceData(name=topic, partition_data=data)])


@st.composite
def producers(draw: st.DrawFn, topic: str, version: int, group: int) -> list[Sent]:
    """A few requests that differ only in their batches, as a producer sends them."""
    client_id = draw(st.sampled_from(["a", "b", "", None, "producer-1"]))
    acks = draw(st.sampled_from([-1, -1, -1, 1, 1, 1, 0, 2]))
    indexes = [[0], [1]][group % 2] if group < 3 else draw(st.sampled_from([[0], [1], [0, 1], [PARTITIONS]]))
    # Without an answer an error closes the connection, and a missing partition is one.
    batches = _plain if acks == 0 else _sound | _sound | _unsound
    indexes = [0] if acks == 0 else indexes
    count = draw(st.integers(2, 8))
    return [
        Sent(group, version, client_id, _request(topic, acks, [(index, draw(kind)) for index in indexes]))
        for kind in [_plain, *[batches] * count]
    ]


@st.composite
def streams(draw: st.DrawFn, topic: str, version: int) -> list[Sent]:
    """Groups of one version; now and then one of another is among them."""
    versions = draw(st.lists(st.sampled_from([version, version, version, 7, 9]), min_size=2, max_size=6))
    return [sent for group, each in enumerate(versions) for sent in draw(producers(topic, each, group))]


# -- both paths


def _send_in_pieces(client: RawClient, stream: list[Sent], cuts: list[int]) -> list[bytes]:
    """The first request of a group gets its response before the others are sent, in pieces: then its form is known."""
    answers: list[bytes] = []
    numbered = enumerate(stream)
    for _, group in itertools.groupby(numbered, key=lambda each: each[1].group):
        first, *others = group
        for some in ([first], others):
            data = b"".join(sent.frame(number, sent.client_id) for number, sent in some)
            places = sorted({0, len(data), *(cut % len(data) for cut in cuts if data)})
            for start, end in itertools.pairwise(places):
                client.send_bytes(data[start:end])
                time.sleep(0.001)  # so that the pieces are read one by one
            answers += [client.read_frame() for _, sent in some if sent.is_answered]
    return answers


def _send_one_by_one(client: RawClient, stream: list[Sent]) -> list[bytes]:
    answers = []
    for number, sent in enumerate(stream):
        client.send_bytes(sent.frame(number, TOO_LONG + (sent.client_id or "")))
        if sent.is_answered:
            answers.append(client.read_frame())
    return answers


def _stored(client: RawClient, topic: str) -> list[bytes]:
    return [bytes(present(client.fetch(topic, 0, partition=index).records)) for index in range(PARTITIONS)]


@pytest.fixture(scope="module")
def other_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path_factory.mktemp("broker") / "data") as process:
        yield process
    assert not process.tracebacks()


@pytest.mark.parametrize("version", [3, 5, 8, 9, 11])
@settings(max_examples=proof(500, 12), phases=tuple(Phase) if IS_FULL else WITHOUT_SHRINKING)
@given(data=st.data())
def test_the_fast_path_responds_and_stores_like_the_general_path(
    broker: BrokerProcess, other_broker: BrokerProcess, version: int, data: st.DataObject
) -> None:
    topic = f"lanes-{next(_topics)}"
    stream = data.draw(streams(topic, version))
    cuts = data.draw(st.just([]) | st.lists(st.integers(0, 1 << 20), max_size=4))
    configs = {"max_message_bytes": str(MAX_MESSAGE_BYTES), **data.draw(st.sampled_from(CONFIGS))}
    with RawClient(broker.port) as quick, RawClient(other_broker.port) as usual:
        for client in (quick, usual):
            create_topic(client, topic, PARTITIONS, configs)
        assert _send_in_pieces(quick, stream, cuts) == _send_one_by_one(usual, stream)
        until(lambda: _stored(quick, topic) == _stored(usual, topic), "the last fsyncs, and the same batches")


@pytest.mark.parametrize("size_bytes", range(13))
def test_the_beginning_of_a_request_is_left_to_the_connection_while_there_is_no_lane(size_bytes: int) -> None:
    connection = cast(Connection, SimpleNamespace(last_activity=0.0))
    lanes = ProducerLanes(connection, SystemClock(), Requests(), 11)
    assert lanes.serve(memoryview(bytes(size_bytes)), 0, size_bytes, []) == 0
