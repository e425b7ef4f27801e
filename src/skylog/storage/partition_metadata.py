"""The topic id of a log: Kafka's `partition.metadata` in the log's folder.

A folder is named after its partition, so a topic that is deleted and created again uses the same folder name. The id
distinguishes them: a log is never opened for another topic than the one that wrote it. Format: the lines `version: 0`
and `topic_id: <URL-safe base64>`. The file is written when the log is created and synced by the first flush. If a crash
loses it before that, the log is assumed to belong to the current topic.
"""

from __future__ import annotations

import base64
import binascii
import logging
from pathlib import Path
from typing import Final
from uuid import UUID

from skylog.durable_files import replace_file

logger = logging.getLogger(__name__)

FILE_NAME: Final = "partition.metadata"


def write_topic_id(directory: Path, topic_id: UUID) -> None:
    encoded = base64.urlsafe_b64encode(topic_id.bytes).decode().rstrip("=")
    replace_file(directory / FILE_NAME, f"version: 0\ntopic_id: {encoded}\n".encode(), durable=False)


def read_topic_id(directory: Path) -> UUID | None:
    """Return the topic id in `directory`; None if the file is missing or damaged."""
    path = directory / FILE_NAME
    try:
        fields = dict(line.split(": ", 1) for line in path.read_text().splitlines())
        encoded = fields["topic_id"]
        return UUID(bytes=base64.urlsafe_b64decode(encoded + "=" * (-len(encoded) % 4)))
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, binascii.Error) as error:
        logger.warning("%s is damaged and will be rewritten: %s", path, error)
        return None
