"""The interface to a foreign client, with what it answers. A peer implements the operations its client has."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from enum import IntEnum, StrEnum
from typing import Protocol

from .record import Record

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
PATIENCE_S = 20.0


class Code(IntEnum):
    """Kafka's error codes that these tests meet; every client reports them by number one way or another."""

    OFFSET_OUT_OF_RANGE = 1
    UNKNOWN_TOPIC_OR_PARTITION = 3
    MESSAGE_TOO_LARGE = 10
    INVALID_TOPIC_EXCEPTION = 17
    TOPIC_ALREADY_EXISTS = 36
    INVALID_PARTITIONS = 37
    INVALID_REPLICATION_FACTOR = 38
    INVALID_CONFIG = 40
    INVALID_RECORD = 87


class Refused(Exception):  # noqa: N818 - reads as what the broker did
    """The client raised an error that carries this Kafka error code."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(f"{code}: {message}")
        self.code = code


class Place(StrEnum):
    BEGINNING = "beginning"
    END = "end"


@dataclass(frozen=True)
class Tail:
    """The position `count` records before the end."""

    count: int


@dataclass(frozen=True)
class At:
    """The position of the first record that is not older than the timestamp."""

    timestamp_ms: int


Position = Place | Tail | At | int


@dataclass(frozen=True)
class Config:
    value: str | None
    is_default: bool


@dataclass(frozen=True)
class ClusterDescription:
    cluster_id: str
    controller_id: int
    brokers: Mapping[int, tuple[str, int]]


class Alteration(IntEnum):
    """Operations of IncrementalAlterConfigs, by their numbers on the wire."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


class Reader(Protocol):
    def take(self, count: int) -> list[Record]:
        """The next `count` records, waiting for them; TimeoutError when they do not come."""


class Peer(Protocol):
    @property
    def codecs(self) -> Sequence[str]: ...

    def produce(
        self,
        topic: str,
        partition: int,
        records: Sequence[Record],
        *,
        codec: str = "none",
        acks: str = "all",
        idempotent: bool = False,
    ) -> None:
        """Send and wait for what the client calls done."""

    def open(self, topic: str, partition: int, start: Position) -> AbstractContextManager[Reader]:
        """A reader whose position is settled when this returns."""

    def offset_for(self, topic: str, partition: int, at: Place | At) -> int | None:
        """Offset of a place or a time; None where no record is that young."""

    def create_topic(
        self,
        name: str,
        partitions: int = 1,
        replication_factor: int = 1,
        config: Mapping[str, str] | None = None,
        validate_only: bool = False,
    ) -> None: ...

    def delete_topic(self, name: str) -> None: ...

    def topics(self) -> set[str]: ...

    def partition_count(self, topic: str) -> int: ...

    def create_partitions(self, topic: str, total: int) -> None: ...

    def configs(self, topic: str) -> Mapping[str, Config]: ...

    def alter_config(self, topic: str, operation: Alteration, key: str, value: str | None) -> None: ...

    def replace_configs(self, topic: str, configs: Mapping[str, str]) -> None: ...

    def delete_records(self, topic: str, partition: int, before: int) -> None: ...

    def cluster(self) -> ClusterDescription: ...


class Readable(Protocol):
    """The part of a peer that reading needs."""

    def open(self, topic: str, partition: int, start: Position) -> AbstractContextManager[Reader]: ...


def read(peer: Readable, topic: str, partition: int, count: int, start: Position = 0) -> list[Record]:
    with peer.open(topic, partition, start) as reader:
        return reader.take(count)


def until(condition: Callable[[], bool], what: str) -> None:
    """Wait for what the broker promises to become true soon, such as a new topic reaching its metadata."""
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"never saw: {what}")
        time.sleep(0.02)
