"""Reaching a cluster, over librdkafka. Knows the Kafka protocol's clients, not the broker, its files or its sockets."""

from skylog.client.admin import Admin
from skylog.client.connection import Connection
from skylog.client.errors import BrokerUnreachableError, TopicNotFoundError
from skylog.client.group import (
    ConsumerGroup,
    GroupActiveError,
    GroupMember,
    GroupNotFoundError,
    GroupPartition,
    OffsetMove,
    ResetPlan,
    ResetTo,
)
from skylog.client.groups import ConsumerGroups
from skylog.client.topic import ConfigValue, OffsetRange, Partition, Topic

__all__ = [
    "Admin",
    "BrokerUnreachableError",
    "ConfigValue",
    "Connection",
    "ConsumerGroup",
    "ConsumerGroups",
    "GroupActiveError",
    "GroupMember",
    "GroupNotFoundError",
    "GroupPartition",
    "OffsetMove",
    "OffsetRange",
    "Partition",
    "ResetPlan",
    "ResetTo",
    "Topic",
    "TopicNotFoundError",
]
