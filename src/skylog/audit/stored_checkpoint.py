"""The file `audit-offset-checkpoint` of a broker's data directory: how far it has read the audit topic.

It only saves time. If it is missing, damaged or wrong, the audit topic is read from its start. So it is not synced.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final
from uuid import UUID

import orjson

from skylog.audit.stored_progress import StoredProgress
from skylog.durable_files import replace_file
from skylog.model import NO_EPOCH, TopicPartition

logger = logging.getLogger(__name__)

CHECKPOINT: Final = "audit-offset-checkpoint"
_VERSION: Final = 2


@dataclass(slots=True)
class StoredCheckpoint:
    """The audit topic with this id was read up to `offset`. The batch before that has the epoch `last_epoch`.

    `partitions` has the progress of all counted partitions up to there.
    """

    audit_topic_id: UUID | None = None
    offset: int = 0
    last_epoch: int = NO_EPOCH
    partitions: dict[TopicPartition, StoredProgress] = field(default_factory=dict)

    def encode(self) -> bytes:
        rows = [
            [*name, one.topic_id, one.end_offset, one.starts, one.has_more] for name, one in self.partitions.items()
        ]
        return orjson.dumps(
            {
                "version": _VERSION,
                "audit_topic_id": str(self.audit_topic_id),
                "offset": self.offset,
                "last_epoch": self.last_epoch,
                "partitions": rows,
            }
        )

    @classmethod
    def read(cls, directory: Path) -> StoredCheckpoint:
        path = directory / CHECKPOINT
        try:
            fields = orjson.loads(path.read_bytes())
            if fields["version"] != _VERSION:
                raise ValueError(f"unknown version {fields['version']}")
            partitions = {
                TopicPartition(str(topic), int(partition)): StoredProgress(
                    topic_id, int(end), [*map(int, starts)], bool(more)
                )
                for topic, partition, topic_id, end, starts, more in fields["partitions"]
            }
            return cls(UUID(fields["audit_topic_id"]), int(fields["offset"]), int(fields["last_epoch"]), partitions)
        except FileNotFoundError:
            return cls()
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            logger.info("%s cannot be used, the audit topic is read from its start: %s", path, error)
            return cls()


def write_checkpoint(directory: Path, content: bytes) -> None:
    """Raises OSError."""
    replace_file(directory / CHECKPOINT, content, durable=False)
