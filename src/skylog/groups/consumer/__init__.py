"""Groups of the consumer protocol (KIP-848): the broker assigns partitions, and members reconcile one by one."""

from skylog.groups.consumer.assignor import AssignmentInput, Assignor
from skylog.groups.consumer.assignors import ASSIGNORS
from skylog.groups.consumer.config import ConsumerGroupConfig
from skylog.groups.consumer.group import ConsumerGroup
from skylog.groups.consumer.member import ConsumerMember, Heartbeat, HeartbeatResponse, MemberState
from skylog.groups.consumer.partitions import Partitions, partitions_of
from skylog.groups.consumer.patterns import ResolvedPattern
from skylog.groups.consumer.request import check_heartbeat, leaves
from skylog.groups.consumer.state import ConsumerGroupState
from skylog.groups.consumer.topics import NO_BROKER_RACKS, BrokerRacks, Topics

__all__ = [
    "ASSIGNORS",
    "NO_BROKER_RACKS",
    "AssignmentInput",
    "Assignor",
    "BrokerRacks",
    "ConsumerGroup",
    "ConsumerGroupConfig",
    "ConsumerGroupState",
    "ConsumerMember",
    "Heartbeat",
    "HeartbeatResponse",
    "MemberState",
    "Partitions",
    "ResolvedPattern",
    "Topics",
    "check_heartbeat",
    "leaves",
    "partitions_of",
]
