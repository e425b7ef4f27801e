"""Topics come, grow, change, are cleaned, go and come again, between stops and kills: what was acknowledged is there.

A model remembers each topic's acknowledged messages by offset. After every restart, and at the end, each partition must
hold exactly those: all of a plain topic, of a compacted one the newest of each key at least, and nothing that another
topic of the same name was given.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from skylog.errors import ErrorCode
from skylog.protocol.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from skylog.protocol.delete_topics import DeleteTopicsRequest
from skylog.protocol.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from skylog.records import Codec, Record, build_batch, iterate_batches, read_records
from skylog.records.batch import CRC_START
from tests.proof import proof
from tests.seeds import seed

from ..broker.conftest import create_topic
from ..broker.process import BrokerProcess
from ..broker.raw import RawClient

SETTINGS = {
    "log.cleaner.backoff.ms": "30",
    "log.cleaner.min.cleanable.ratio": "0.01",
    "log.flush.scheduler.interval.ms": "20",
    "log.flush.offset.checkpoint.interval.ms": "50",
    "log.retention.check.interval.ms": "50",
    "log.retention.ms": "-1",
    "log.index.interval.bytes": "200",
}
NAMES = ["a", "b", "c"]
KINDS = [
    {"segment_bytes": "700"},
    {"segment_bytes": "700", "cleanup_policy": "compact"},
    {"segment_bytes": "2000", "cleanup_policy": "compact", "compression_type": "gzip"},
    {"segment_bytes": "1500", "compression_type": "lz4", "flush_messages": "1"},
    {},
]
CHANGES = [
    ("segment.bytes", "500"),
    ("segment.bytes", "5000"),
    ("flush.messages", "3"),
    ("compression.type", "zstd"),
    ("compression.type", "producer"),
    ("message.timestamp.type", "LogAppendTime"),
    ("message.timestamp.type", "CreateTime"),
]
KEYS = [b"key-%d" % number for number in range(7)]
MAX_PARTITIONS = 4
PRODUCER_ID = 7
READS = [1, 300, 3000, 1 << 20]

Message = tuple[bytes, bytes]
"""Key and value."""


@dataclass
class Topic:
    """What a topic was acknowledged, by offset, for each of its partitions."""

    is_compacted: bool
    partitions: list[dict[int, Message]] = field(default_factory=list)

    def check(self, partition: int, start: int, end: int, found: dict[int, Message]) -> None:
        stored = self.partitions[partition]
        assert (start, end) == (0, len(stored))
        assert found.items() <= stored.items(), "nothing that was not acknowledged, and each at its offset"
        if self.is_compacted:
            newest = {key: offset for offset, (key, _) in sorted(stored.items())}
            assert set(newest.values()) <= found.keys(), "the newest message of each key"
        else:
            assert found == stored


class Life:
    """Random changes to the topics of a broker, and the model of what it must hold."""

    def __init__(self, broker: BrokerProcess, rng: random.Random) -> None:
        self._broker = broker
        self._rng = rng
        self._client = RawClient(broker.port)
        self._topics: dict[str, Topic] = {}
        self._count = 0

    def step(self) -> None:
        ways: list[tuple[int, Callable[[], None]]] = [
            (40, self.write),
            (12, self.write_a_lie),
            (8, self.come),
            (6, self.come_again),
            (5, self.grow),
            (6, self.change),
            (6, self.go),
            (3, self.restart),
        ]
        (way,) = self._rng.choices([way for _, way in ways], [weight for weight, _ in ways])
        way()

    def come(self) -> None:
        missing = [name for name in NAMES if name not in self._topics]
        if missing:
            kind, partitions = self._rng.choice(KINDS), self._rng.randint(1, 3)
            name = create_topic(self._client, self._rng.choice(missing), partitions, kind)
            self._topics[name] = Topic(kind.get("cleanup_policy") == "compact", [{} for _ in range(partitions)])

    def go(self) -> None:
        if self._topics:
            name = self._rng.choice(sorted(self._topics))
            del self._topics[name]
            (answer,) = self._client.ask(DeleteTopicsRequest(topic_names=[name], timeout_ms=10_000), 4).responses
            assert answer.error_code == 0, answer

    def come_again(self) -> None:
        """Under the name of a topic that has just been written to: its flush and its cleaning may be under way."""
        for _ in range(self._rng.randint(0, 12)):
            self.write()
        self.go()
        self.come()
        self.write()

    def grow(self) -> None:
        small = [name for name, topic in self._topics.items() if len(topic.partitions) < MAX_PARTITIONS]
        if small:
            name = self._rng.choice(small)
            partitions = self._topics[name].partitions
            partitions.append({})
            change = CreatePartitionsTopic(name=name, count=len(partitions))
            (answer,) = self._client.ask(CreatePartitionsRequest(topics=[change], timeout_ms=10_000), 2).results
            assert answer.error_code == 0, answer

    def change(self) -> None:
        if self._topics:
            key, value = self._rng.choice(CHANGES)
            config = AlterableConfig(name=key, config_operation=0, value=value)
            name = self._rng.choice(sorted(self._topics))
            resource = AlterConfigsResource(resource_type=2, resource_name=name, configs=[config])
            (answer,) = self._client.ask(IncrementalAlterConfigsRequest(resources=[resource]), 1).responses
            assert answer.error_code == 0, answer

    def write(self) -> None:
        if not self._topics:
            return
        name = self._rng.choice(sorted(self._topics))
        index = self._rng.randrange(len(self._topics[name].partitions))
        stored = self._topics[name].partitions[index]
        messages = [self._message() for _ in range(self._rng.choice([1, 1, 1, 5, 40]))]
        batch = self._batch(messages, len(stored))
        for _ in range(self._rng.choice([1, 1, 2])):  # sent again, it is stored once
            answer = self._client.produce(name, batch, partition=index)
            assert (ErrorCode(answer.error_code), answer.base_offset) == (0, len(stored)), answer
        stored.update(enumerate(messages, len(stored)))

    def _message(self) -> Message:
        self._count += 1
        return self._rng.choice(KEYS), b"%d " % self._count + b"." * self._rng.choice([5, 5, 50, 300])

    def _batch(self, messages: list[Message], sequence: int) -> bytearray:
        """One idempotent producer writes everything, so that its sequence is the offset."""
        records = [Record(value, key, 1000 + index) for index, (key, value) in enumerate(messages)]
        codec = self._rng.choice(list(Codec))
        return build_batch(records, codec=codec, producer_id=PRODUCER_ID, producer_epoch=0, base_sequence=sequence)

    def write_a_lie(self) -> None:
        """A batch that is not what it says, or does not follow, is refused and leaves no trace."""
        if not self._topics:
            return
        name = self._rng.choice(sorted(self._topics))
        topic = self._topics[name]
        batch = self._batch([self._message()], len(topic.partitions[0]))
        lie = self._rng.choice(["cut", "bit", "gap", "no key"])
        if lie == "cut":
            del batch[self._rng.randrange(1, len(batch)) :]
        elif lie == "bit":
            batch[self._rng.randrange(CRC_START, len(batch))] ^= 1 << self._rng.randrange(8)
        elif lie == "gap":
            if not topic.partitions[0]:
                return
            batch = self._batch([self._message()], len(topic.partitions[0]) + 1)
        elif topic.is_compacted:
            batch = build_batch([Record(b"value", None, 1000)], codec=self._rng.choice(list(Codec)))
        else:
            return
        assert self._client.produce(name, batch).error_code != 0, lie

    def restart(self) -> None:
        self._client.close()
        if self._rng.random() < 0.5:
            self._broker.kill()
        else:
            self._broker.stop()
        self._broker.start()
        self._client = RawClient(self._broker.port)
        self.check()

    def check(self) -> None:
        names = {topic.name: len(topic.partitions) for topic in self._client.metadata().topics}
        assert names == {name: len(topic.partitions) for name, topic in self._topics.items()}
        for name, topic in self._topics.items():
            for partition in range(len(topic.partitions)):
                start = self._client.list_offset(name, -2, partition=partition).offset
                end = self._client.end_offset(name, partition)
                topic.check(partition, start, end, self._read(name, partition, end))

    def _read(self, name: str, partition: int, end: int) -> dict[int, Message]:
        found: dict[int, Message] = {}
        offset = 0
        while offset < end:
            answer = self._client.fetch(name, offset, partition=partition, partition_max_bytes=self._rng.choice(READS))
            assert answer.error_code == 0, (name, partition, offset, answer)
            data, before = bytes(answer.records or b""), offset
            for position, header in iterate_batches(data):
                for record in read_records(data[position : position + header.size_bytes]):
                    found[record.offset] = (record.key or b"", record.value or b"")
                offset = header.end_offset
            assert offset > before, "the reader gets on"
        return found

    def close(self) -> None:
        self._client.close()


@pytest.mark.parametrize("number", range(proof(30, 1)))
def test_topics_come_and_go_between_stops_and_kills_and_keep_what_is_acknowledged(tmp_path: Path, number: int) -> None:
    rng = random.Random(f"{seed()}/{number}")
    with BrokerProcess(tmp_path / "data", SETTINGS) as broker:
        life = Life(broker, rng)
        for _ in range(proof(400, 120)):
            life.step()
        life.restart()
        life.restart()
        life.close()
    assert not broker.tracebacks()
    folders = {path.name.rpartition("-")[0] for path in (tmp_path / "data").iterdir() if path.is_dir()}
    assert folders <= {*NAMES, "__consumer_offsets"}, "deleted topics leave nothing behind"
