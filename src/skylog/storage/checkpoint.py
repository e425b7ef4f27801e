"""One offset per partition in one file, in Kafka's form: a version line, a count, lines of `topic partition offset`.

Two such files lie in a data directory: how far each log is known to be on disk (`recovery-point-offset-checkpoint`)
and where each log begins (`log-start-offset-checkpoint`).
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from skylog.model import TopicPartition
from skylog.storage.files import replace_file

logger = logging.getLogger(__name__)

RECOVERY_POINTS: Final = "recovery-point-offset-checkpoint"
LOG_STARTS: Final = "log-start-offset-checkpoint"
CLEANER_OFFSETS: Final = "cleaner-offset-checkpoint"
_VERSION: Final = "0"


def write_checkpoint(path: Path, offsets: Mapping[TopicPartition, int]) -> None:
    lines = [_VERSION, str(len(offsets)), *(f"{key.topic} {key.partition} {offsets[key]}" for key in offsets)]
    replace_file(path, ("\n".join(lines) + "\n").encode())


def read_checkpoint(path: Path) -> dict[TopicPartition, int]:
    """The offsets in `path`; none where the file is missing or damaged, which only makes recovery read more."""
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
        logger.warning("%s is not readable and is left out: %s", path, error)
        return {}
    return offsets
