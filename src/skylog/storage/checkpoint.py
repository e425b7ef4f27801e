"""Checkpoint files: one offset per partition. Kafka's format: version, count, then lines of `topic partition offset`.

The data directory has four: the offset up to which each log is known to be on disk
(`recovery-point-offset-checkpoint`), its start offset (`log-start-offset-checkpoint`), the offset up to which it is
compacted (`cleaner-offset-checkpoint`), and its high watermark (`replication-offset-checkpoint`).
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from skylog.durable_files import replace_file
from skylog.model import TopicPartition

logger = logging.getLogger(__name__)

RECOVERY_POINTS: Final = "recovery-point-offset-checkpoint"
LOG_STARTS: Final = "log-start-offset-checkpoint"
CLEANER_OFFSETS: Final = "cleaner-offset-checkpoint"
HIGH_WATERMARKS: Final = "replication-offset-checkpoint"
_VERSION: Final = "0"


def write_checkpoint(path: Path, offsets: Mapping[TopicPartition, int]) -> None:
    lines = [_VERSION, str(len(offsets)), *(f"{key.topic} {key.partition} {offsets[key]}" for key in offsets)]
    replace_file(path, ("\n".join(lines) + "\n").encode())


def read_checkpoint(path: Path) -> dict[TopicPartition, int]:
    """Return the offsets in `path`. If the file is missing or damaged, return none, and recovery only reads more."""
    try:
        version, count, *lines = path.read_text().splitlines()
        offsets = {}
        for line in lines:
            topic, partition, offset = line.split()
            offsets[TopicPartition(topic, int(partition))] = int(offset)
        if version != _VERSION or int(count) != len(offsets):
            raise ValueError("version or count does not match")
    except FileNotFoundError:
        return {}
    except ValueError as error:
        logger.warning("ignoring %s, which is damaged: %s", path, error)
        return {}
    return offsets
