"""How far the stored tier has counted each partition, in the file `audit-offset-checkpoint` of the data directory.

Besides the end of the last report the starts of the last few are kept: where a log has lost its end, as after a loss of
power, counting goes on at such a start, and the reports from there on are replaced by the next one.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final
from uuid import UUID

import orjson

from skylog.model import TopicPartition
from skylog.storage.files import replace_file

logger = logging.getLogger(__name__)

CHECKPOINT: Final = "audit-offset-checkpoint"
REMEMBERED_STARTS: Final = 16
_VERSION: Final = 1


@dataclass(slots=True)
class Progress:
    """Of one partition: reports cover it up to `end_offset`; `starts` are where the last of them began, ascending."""

    topic_id: UUID
    end_offset: int
    starts: list[int]

    def reported(self, start_offset: int, end_offset: int) -> None:
        kept = [start for start in self.starts if start < start_offset]
        self.starts = [*kept, start_offset][-REMEMBERED_STARTS:]
        self.end_offset = end_offset

    def boundary_before(self, offset: int) -> int:
        """Where a report began that does not reach beyond `offset`; 0, before all of them, where none is known."""
        return max((start for start in self.starts if start <= offset), default=0)


@dataclass(slots=True)
class Checkpoint:
    """The progress of all partitions, as reported to the audit topic with this id: another one begins from nothing."""

    audit_topic_id: UUID | None = None
    partitions: dict[TopicPartition, Progress] = field(default_factory=dict)

    def find(self, name: TopicPartition, topic_id: UUID) -> Progress | None:
        """Of that very topic: one of the same name that was there before does not count."""
        progress = self.partitions.get(name)
        return progress if progress is not None and progress.topic_id == topic_id else None

    def encode(self) -> bytes:
        rows = [[*name, str(one.topic_id), one.end_offset, one.starts] for name, one in self.partitions.items()]
        return orjson.dumps({"version": _VERSION, "audit_topic_id": str(self.audit_topic_id), "partitions": rows})

    @classmethod
    def read(cls, directory: Path) -> Checkpoint:
        """An empty one where the file is missing or damaged: then everything is counted again, and replaces the old."""
        path = directory / CHECKPOINT
        try:
            fields = orjson.loads(path.read_bytes())
            if fields["version"] != _VERSION:
                raise ValueError(f"version {fields['version']} is not known")
            partitions = {
                TopicPartition(str(topic), int(partition)): Progress(UUID(topic_id), int(end), list(map(int, starts)))
                for topic, partition, topic_id, end, starts in fields["partitions"]
            }
            return cls(UUID(fields["audit_topic_id"]), partitions)
        except FileNotFoundError:
            return cls()
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            logger.warning("%s is not readable, everything is counted again: %s", path, error)
            return cls()


def write_checkpoint(directory: Path, content: bytes) -> None:
    replace_file(directory / CHECKPOINT, content)
