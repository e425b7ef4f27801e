"""Topics reserved for the broker, and the operations that clients may not perform on them.

The coordinators read `__consumer_offsets` and `__transaction_state` back after a restart. Another partition would move
groups and transactional ids to other partitions, and a deleted record would be a lost offset or decision. Kafka rejects
DeleteRecords and Produce for these topics. skylog also rejects deleting them, adding partitions, and any cleanup policy
other than compaction.
"""

from __future__ import annotations

from typing import Final

from skylog.broker.config import ServerConfig
from skylog.errors import ErrorCode, KafkaError
from skylog.model import CLUSTER_METADATA_TOPIC, CONSUMER_OFFSETS_TOPIC, INTERNAL_TOPICS, TRANSACTION_STATE_TOPIC
from skylog.storage import LogConfig

REPLICATION_FACTOR_KEYS: Final = {
    CONSUMER_OFFSETS_TOPIC: "offsets.topic.replication.factor",
    TRANSACTION_STATE_TOPIC: "transaction.state.log.replication.factor",
}
"""The settings with the replication factors of internal topics."""

TRANSACTION_MIN_ISR_KEY: Final = "transaction.state.log.min.isr"


def check_may_create(name: str) -> None:
    if name == CLUSTER_METADATA_TOPIC:
        raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"'{name}' is reserved for the metadata log")


def check_may_change(name: str, what: str) -> None:
    """Raise INVALID_TOPIC_EXCEPTION for an internal topic, because `what` would lose the broker's state."""
    if name in INTERNAL_TOPICS:
        raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"'{name}' is an internal topic, it cannot {what}")


def check_policy(name: str, config: LogConfig) -> None:
    if name in INTERNAL_TOPICS and config.cleanup_policy != ("compact",):
        raise KafkaError(
            ErrorCode.INVALID_CONFIG,
            f"'{name}' is an internal topic, its cleanup.policy must be compact; any other policy would lose records",
        )


def default_configs(name: str, config: ServerConfig) -> dict[str, str]:
    """Return the configuration of a new topic where its creator sets none: empty unless the topic is internal."""
    if name not in INTERNAL_TOPICS:
        return {}
    configs = {"cleanup.policy": "compact"}
    if name == CONSUMER_OFFSETS_TOPIC:
        configs["segment.bytes"] = str(config.groups.offsets_topic_segment_bytes)
    elif name == TRANSACTION_STATE_TOPIC:
        transactions = config.transactions
        minimum = min(transactions.state_log_min_isr, transactions.state_log_replication_factor)
        configs["segment.bytes"] = str(transactions.state_log_segment_bytes)
        configs["min.insync.replicas"] = str(minimum)
    return configs


def default_count(name: str, config: ServerConfig) -> int:
    """Return the number of partitions of a topic that is created without one."""
    if name == CONSUMER_OFFSETS_TOPIC:
        return config.groups.offsets_topic_num_partitions
    if name == TRANSACTION_STATE_TOPIC:
        return config.transactions.state_log_num_partitions
    return config.broker.num_partitions


def default_replication_factor(name: str, config: ServerConfig) -> int:
    """Return the replication factor of a topic that is created without one."""
    if name == CONSUMER_OFFSETS_TOPIC:
        return config.groups.offsets_topic_replication_factor
    if name == TRANSACTION_STATE_TOPIC:
        return config.transactions.state_log_replication_factor
    return config.broker.default_replication_factor
