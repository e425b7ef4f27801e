"""What is to be sent for one micro-batch, as it was decided once and for all.

The manifest is written before the first batch is sent. From then on the micro-batch is what it lists: whoever finds it
unfinished sends the rest of it, and what a second run of the same micro-batch has encoded is not used. One file per
query, replaced atomically::

    {"batch_id": 7, "producer_id": 12, "producer_epoch": 0, "created_ms": 1700000000000, "is_done": false,
     "lanes": [["topic", partition, base_sequence, end_offset], ...],
     "files": [["path", [["topic", partition, position, size_bytes, record_count], ...]], ...]}

`base_sequence` is the sequence of the first record that goes to the partition, `end_offset` where its log ended when
the manifest was made: what this producer has sent for the micro-batch lies behind it. The producer and its sequences go
on from micro-batch to micro-batch, so that brokers need to remember one producer only.
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

from skylog.errors import SkylogError
from skylog.model import TopicPartition
from skylog.spark.leaders import ProducerId
from skylog.spark.writing.staging import StagedBatch
from skylog.storage.files import replace_file

PRODUCER_IDLE_MS: Final = 3_600_000
"""A producer that was silent for longer may have been forgotten by brokers, and a new one is taken."""
MAX_SEQUENCE: Final = 1 << 30
_NAME: Final = "manifest.json"
_LOCK: Final = "lock"


class LaneStart(NamedTuple):
    base_sequence: int
    end_offset: int


@dataclass(frozen=True)
class Manifest:
    """The micro-batch `batch_id`. `lanes` has every partition that this producer has sent to."""

    batch_id: int
    producer: ProducerId
    created_ms: int
    lanes: dict[TopicPartition, LaneStart]
    files: list[tuple[str, tuple[StagedBatch, ...]]] = field(default_factory=list)
    is_done: bool = False

    def next_sequences(self) -> dict[TopicPartition, int]:
        """The sequence with which each partition goes on after this micro-batch."""
        counts: Counter[TopicPartition] = Counter()
        for _, batches in self.files:
            for batch in batches:
                counts[batch.target] += batch.record_count
        return {key: start.base_sequence + counts[key] for key, start in self.lanes.items()}

    def done(self) -> Manifest:
        lanes = {key: LaneStart(sequence, -1) for key, sequence in self.next_sequences().items()}
        return replace(self, lanes=lanes, files=[], is_done=True)

    def can_go_on(self, now_ms: int) -> bool:
        """Whether the next micro-batch may have the same producer."""
        is_recent = now_ms - self.created_ms < PRODUCER_IDLE_MS
        return is_recent and all(start.base_sequence < MAX_SEQUENCE for start in self.lanes.values())


class ManifestFile:
    """The manifest of one query in its staging directory."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Wait until no other process works on this query.

        The Python process of a driver that was killed may still be sending when the next driver comes.
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
            raise SkylogError(f"{path} cannot be read: {error}; it tells what the query has sent already") from error

    def write(self, manifest: Manifest) -> None:
        replace_file(self._directory / _NAME, json.dumps(_to_json(manifest)).encode())


def _to_json(manifest: Manifest) -> dict[str, Any]:
    return {
        "batch_id": manifest.batch_id,
        "producer_id": manifest.producer.producer_id,
        "producer_epoch": manifest.producer.epoch,
        "created_ms": manifest.created_ms,
        "is_done": manifest.is_done,
        "lanes": [[*key, *start] for key, start in manifest.lanes.items()],
        "files": manifest.files,
    }


def _from_json(found: dict[str, Any]) -> Manifest:
    return Manifest(
        batch_id=found["batch_id"],
        producer=ProducerId(found["producer_id"], found["producer_epoch"]),
        created_ms=found["created_ms"],
        lanes={TopicPartition(topic, number): LaneStart(*start) for topic, number, *start in found["lanes"]},
        files=[(path, tuple(StagedBatch(*batch) for batch in batches)) for path, batches in found["files"]],
        is_done=found["is_done"],
    )
