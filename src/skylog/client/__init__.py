"""Reaching a cluster, over librdkafka. Knows the Kafka protocol's clients, not the broker, its files or its sockets."""

from skylog.client.admin import Admin
from skylog.client.connection import Connection
from skylog.client.errors import BrokerUnreachableError, TopicNotFoundError
from skylog.client.topic import ConfigValue, OffsetRange, Partition, Topic

__all__ = [
    "Admin",
    "BrokerUnreachableError",
    "ConfigValue",
    "Connection",
    "OffsetRange",
    "Partition",
    "Topic",
    "TopicNotFoundError",
]
