"""The client API, on top of librdkafka. Works with any Kafka cluster; knows nothing of the broker's internals."""

from skylog.client.admin import Admin
from skylog.client.aio import AsyncBatch, AsyncConsumer, AsyncProducer
from skylog.client.async_runner import AsyncStreamRunner
from skylog.client.cluster import (
    BrokerLoad,
    ClusterBroker,
    ClusterDescription,
    Election,
    PartitionState,
    Reassignment,
)
from skylog.client.cluster_admin import ClusterAdmin
from skylog.client.connection import DEFAULT_BOOTSTRAP, Connection
from skylog.client.consumer import Consumer
from skylog.client.dead_letters import DeadLetter, Original, dead_letter, original_of
from skylog.client.delivery import Delivery, Position
from skylog.client.error_policy import ErrorPolicy, RunnerCounts
from skylog.client.errors import (
    BrokerUnreachableError,
    BufferFullError,
    DeliveryError,
    DeserializeError,
    OffsetOutOfRangeError,
    ProducerFencedError,
    SerializeError,
    TopicNotFoundError,
    TransactionAbortedError,
    TransactionUnknownError,
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
from skylog.client.reassignment_plan import PartitionMove, ReassignmentPlan
from skylog.client.reassignment_progress import ReassignmentProgress
from skylog.client.replay import Replay, ReplayProgress
from skylog.client.replay_plan import LogEdge, Place, ReplayPlan, plan_replay, plan_return
from skylog.client.runner import StreamRunner
from skylog.client.serializers import from_json, from_model, from_text, to_json, to_model, to_text
from skylog.client.simple_consumer import SimpleConsumer
from skylog.client.streams import MessageStream, MessageStreams, message_streams
from skylog.client.topic import ConfigValue, OffsetRange, Partition, Topic
from skylog.errors import ConfigError, KafkaError, SkylogError
from skylog.model import TopicPartition

__all__ = [
    "DEFAULT_BOOTSTRAP",
    "Admin",
    "AsyncBatch",
    "AsyncConsumer",
    "AsyncProducer",
    "AsyncStreamRunner",
    "BrokerLoad",
    "BrokerUnreachableError",
    "BufferFullError",
    "ClusterAdmin",
    "ClusterBroker",
    "ClusterDescription",
    "ConfigError",
    "ConfigValue",
    "Connection",
    "Consumer",
    "ConsumerGroup",
    "ConsumerGroups",
    "DeadLetter",
    "Delivery",
    "DeliveryError",
    "DeserializeError",
    "Election",
    "ErrorPolicy",
    "GroupActiveError",
    "GroupMember",
    "GroupNotFoundError",
    "GroupPartition",
    "KafkaError",
    "LogEdge",
    "Message",
    "MessageStream",
    "MessageStreams",
    "OffsetMove",
    "OffsetOutOfRangeError",
    "OffsetRange",
    "Original",
    "Partition",
    "PartitionMove",
    "PartitionReader",
    "PartitionState",
    "Place",
    "Position",
    "Producer",
    "ProducerFencedError",
    "Reassignment",
    "ReassignmentPlan",
    "ReassignmentProgress",
    "Replay",
    "ReplayPlan",
    "ReplayProgress",
    "ResetPlan",
    "ResetTo",
    "RunnerCounts",
    "SerializeError",
    "SimpleConsumer",
    "SkylogError",
    "StreamRunner",
    "Topic",
    "TopicNotFoundError",
    "TopicPartition",
    "TransactionAbortedError",
    "TransactionUnknownError",
    "dead_letter",
    "from_json",
    "from_model",
    "from_text",
    "message_streams",
    "original_of",
    "plan_replay",
    "plan_return",
    "read_last",
    "to_json",
    "to_model",
    "to_text",
]
