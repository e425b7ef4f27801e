"""The manifest: the final list of what to send for one micro-batch.

It is written before the first batch is sent. From then on it defines the micro-batch: a process that finds it
unfinished sends the rest, and files of a second run of the same micro-batch are not used. One file per query, replaced
atomically::

    {"batch_id": 7, "producer_id": 12, "producer_epoch": 0, "created_ms": 1700000000000, "is_done": false,
     "lanes": [["topic", partition, base_sequence, end_offset], ...],
     "files": [["path", [["topic", partition, position, size_bytes, record_count], ...]], ...]}

`base_sequence` is the sequence of the first record for the partition. `end_offset` is the end of its log when the
manifest was created: all batches of the micro-batch are stored after it. Producer and sequences continue from
micro-batch to micro-batch, so brokers keep the state of only one producer.
"""

from __future__ import annotations

import fcntl
import json
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final, NamedTuple

from skylog.durable_files import replace_file
from skylog.errors import SkylogError
from skylog.model import TopicPartition
from skylog.spark.leaders import ProducerId
from skylog.spark.writing.staging import StagedBatch

PRODUCER_IDLE_MS: Final = 3_600_000
"""Brokers may have expired a producer that was idle for longer, so a new one is used."""
MAX_SEQUENCE: Final = 1 << 30
_NAME: Final = "manifest.json"
_LOCK: Final = "lock"


class PartitionStart(NamedTuple):
    base_sequence: int
    end_offset: int


@dataclass(frozen=True)
class Manifest:
    """The manifest of micro-batch `batch_id`. `partitions` has every partition that this producer has sent to."""

    batch_id: int
    producer: ProducerId
    created_ms: int
    partitions: dict[TopicPartition, PartitionStart]
    files: list[tuple[str, tuple[StagedBatch, ...]]] = field(default_factory=list)
    is_done: bool = False

    def next_sequences(self) -> dict[TopicPartition, int]:
        """Return the next sequence of each partition after this micro-batch."""
        counts: Counter[TopicPartition] = Counter()
        for _, batches in self.files:
            for batch in batches:
                counts[batch.target] += batch.record_count
        return {key: start.base_sequence + counts[key] for key, start in self.partitions.items()}

    def done(self) -> Manifest:
        partitions = {key: PartitionStart(sequence, -1) for key, sequence in self.next_sequences().items()}
        return replace(self, partitions=partitions, files=[], is_done=True)

    def can_go_on(self, now_ms: int) -> bool:
        """Return whether the next micro-batch may use the same producer."""
        is_recent = now_ms - self.created_ms < PRODUCER_IDLE_MS
        return is_recent and all(start.base_sequence < MAX_SEQUENCE for start in self.partitions.values())


class ManifestFile:
    """The manifest file in the staging directory of a query."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Wait for the query's lock, and hold it.

        After a driver was killed, its Python process may still be sending when the next driver starts.
        """
        self._directory.mkdir(parents=True, exist_ok=True)
        with (self._directory / _LOCK).open("wb") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield

    def read(self) -> Manifest | None:
        path = self._directory / _NAME
        if not path.exists():
            return None
        try:
            return _from_json(json.loads(path.read_bytes()))
        except (ValueError, KeyError, TypeError) as error:
            raise SkylogError(
                f"cannot read {path}: {error}; without it, records that the query has sent would be sent again"
            ) from error

    def write(self, manifest: Manifest) -> None:
        replace_file(self._directory / _NAME, json.dumps(_to_json(manifest)).encode())


def _to_json(manifest: Manifest) -> dict[str, Any]:
    return {
        "batch_id": manifest.batch_id,
        "producer_id": manifest.producer.producer_id,
        "producer_epoch": manifest.producer.epoch,
        "created_ms": manifest.created_ms,
        "is_done": manifest.is_done,
        "lanes": [[*key, *start] for key, start in manifest.partitions.items()],
        "files": manifest.files,
    }


def _from_json(found: dict[str, Any]) -> Manifest:
    return Manifest(
        batch_id=found["batch_id"],
        producer=ProducerId(found["producer_id"], found["producer_epoch"]),
        created_ms=found["created_ms"],
        partitions={TopicPartition(topic, number): PartitionStart(*start) for topic, number, *start in found["lanes"]},
        files=[(path, tuple(StagedBatch(*batch) for batch in batches)) for path, batches in found["files"]],
        is_done=found["is_done"],
    )
