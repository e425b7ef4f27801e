"""Reaching a cluster, over librdkafka. Knows the Kafka protocol's clients, not the broker, its files or its sockets."""

from skylog.client.admin import Admin
from skylog.client.aio import AsyncConsumer, AsyncProducer
from skylog.client.connection import DEFAULT_BOOTSTRAP, Connection
from skylog.client.consumer import Consumer
from skylog.client.delivery import Delivery, Position
from skylog.client.errors import (
    BrokerUnreachableError,
    BufferFullError,
    DeliveryError,
    DeserializeError,
    OffsetOutOfRangeError,
    SerializeError,
    TopicNotFoundError,
)
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
from skylog.client.message import Message
from skylog.client.partition_reader import PartitionReader, read_last
from skylog.client.producer import Producer
from skylog.client.replay import Replay, ReplayProgress
from skylog.client.replay_plan import LogEdge, Place, ReplayPlan, plan_replay
from skylog.client.simple_consumer import SimpleConsumer
from skylog.client.streams import MessageStream, MessageStreams, message_streams
from skylog.client.topic import ConfigValue, OffsetRange, Partition, Topic

__all__ = [
    "DEFAULT_BOOTSTRAP",
    "Admin",
    "AsyncConsumer",
    "AsyncProducer",
    "BrokerUnreachableError",
    "BufferFullError",
    "ConfigValue",
    "Connection",
    "Consumer",
    "ConsumerGroup",
    "ConsumerGroups",
    "Delivery",
    "DeliveryError",
    "DeserializeError",
    "GroupActiveError",
    "GroupMember",
    "GroupNotFoundError",
    "GroupPartition",
    "LogEdge",
    "Message",
    "MessageStream",
    "MessageStreams",
    "OffsetMove",
    "OffsetOutOfRangeError",
    "OffsetRange",
    "Partition",
    "PartitionReader",
    "Place",
    "Position",
    "Producer",
    "Replay",
    "ReplayPlan",
    "ReplayProgress",
    "ResetPlan",
    "ResetTo",
    "SerializeError",
    "SimpleConsumer",
    "Topic",
    "TopicNotFoundError",
    "message_streams",
    "plan_replay",
    "read_last",
]
