"""Types and constants shared by all layers: topic names, partitions, special offsets and timestamps."""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from skylog.errors import ErrorCode, KafkaError

NO_OFFSET: Final = -1
NO_TIMESTAMP: Final = -1
NO_EPOCH: Final = -1
NO_PRODUCER_ID: Final = -1

MAX_TOPIC_NAME_LENGTH: Final = 249
_TOPIC_NAME = re.compile(r"[a-zA-Z0-9._-]+")

CONSUMER_OFFSETS_TOPIC: Final = "__consumer_offsets"
TRANSACTION_STATE_TOPIC: Final = "__transaction_state"
INTERNAL_TOPICS: Final = frozenset({CONSUMER_OFFSETS_TOPIC, TRANSACTION_STATE_TOPIC})
CLUSTER_METADATA_TOPIC: Final = "__cluster_metadata"
"""Kafka's internal metadata log. It is not a topic, so no topic may have this name."""


class TopicPartition(NamedTuple):
    """One partition of one topic. Its log is in the directory `topic-partition`."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


def check_topic_name(name: str) -> None:
    """Raise INVALID_TOPIC_EXCEPTION unless `name` is a valid topic name, and so a valid directory name."""
    if not name:
        reason = "must not be empty"
    elif name in (".", ".."):
        reason = "must not be '.' or '..'"
    elif len(name) > MAX_TOPIC_NAME_LENGTH:
        reason = f"is longer than {MAX_TOPIC_NAME_LENGTH} characters"
    elif not _TOPIC_NAME.fullmatch(name):
        reason = "may only contain letters, digits, '.', '_' and '-'"
    else:
        return
    raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"topic name {name[:300]!r} {reason}")
