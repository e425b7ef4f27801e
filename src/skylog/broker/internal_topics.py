"""The topics that belong to the broker, and what clients may do to them.

Group coordination reads `__consumer_offsets` back after a restart: a partition more moves groups to other partitions,
and a record less is a lost offset. Kafka refuses DeleteRecords and Produce there; skylog also refuses to delete these
topics, to let them grow, and any cleanup policy other than compaction.
"""

from __future__ import annotations

from skylog.broker.config import ServerConfig
from skylog.errors import ErrorCode, KafkaError
from skylog.model import CLUSTER_METADATA_TOPIC, CONSUMER_OFFSETS_TOPIC, INTERNAL_TOPICS
from skylog.storage import LogConfig


def check_may_create(name: str) -> None:
    if name == CLUSTER_METADATA_TOPIC:
        raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"'{name}' is the name of the metadata log, not of a topic")


def check_may_change(name: str, what: str) -> None:
    """Raise INVALID_TOPIC_EXCEPTION for an internal topic: `what` would lose what the broker keeps in it."""
    if name in INTERNAL_TOPICS:
        raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"'{name}' is the broker's own, it cannot {what}")


def check_policy(name: str, config: LogConfig) -> None:
    if name in INTERNAL_TOPICS and config.cleanup_policy != ("compact",):
        raise KafkaError(
            ErrorCode.INVALID_CONFIG,
            f"'{name}' is the broker's own, it must keep cleanup.policy=compact; any other policy would lose records",
        )


def default_configs(name: str, config: ServerConfig) -> dict[str, str]:
    """What a new topic is configured with unless its creator says otherwise: nothing, for most."""
    if name not in INTERNAL_TOPICS:
        return {}
    configs = {"cleanup.policy": "compact"}
    if name == CONSUMER_OFFSETS_TOPIC:
        configs["segment.bytes"] = str(config.groups.offsets_topic_segment_bytes)
    return configs


def default_count(name: str, config: ServerConfig) -> int:
    """Partitions of a topic that is created without a number."""
    if name == CONSUMER_OFFSETS_TOPIC:
        return config.groups.offsets_topic_num_partitions
    return config.broker.num_partitions
