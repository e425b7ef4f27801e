"""Kafka's rules for the fields of a heartbeat, checked before the group is looked up."""

from __future__ import annotations

from collections.abc import Sequence

from skylog.errors import ErrorCode, KafkaError
from skylog.groups.consumer.member import JOIN_EPOCH, LEAVE_EPOCH, LEAVE_STATIC_EPOCH, Heartbeat


def check_heartbeat(heartbeat: Heartbeat, *, needs_id: bool, assignors: Sequence[str]) -> None:
    """Raise KafkaError if a heartbeat is invalid. `needs_id` is set from version 1 on (KIP-1082)."""
    reason = _invalid(heartbeat, needs_id)
    if reason is not None:
        raise KafkaError(ErrorCode.INVALID_REQUEST, reason)
    name = heartbeat.assignor
    if name is not None and name not in assignors:
        known = ", ".join(assignors)
        raise KafkaError(ErrorCode.UNSUPPORTED_ASSIGNOR, f"there is no assignor '{name}'; there are: {known}")


def _invalid(heartbeat: Heartbeat, needs_id: bool) -> str | None:
    epoch = heartbeat.epoch
    if not heartbeat.member_id and (needs_id or epoch != JOIN_EPOCH):
        return "MemberId can't be empty."
    if heartbeat.instance_id == "":
        return "InstanceId can't be empty."
    if heartbeat.rack_id == "":
        return "RackId can't be empty."
    if epoch < LEAVE_STATIC_EPOCH:
        return "MemberEpoch is invalid."
    if epoch == LEAVE_STATIC_EPOCH and heartbeat.instance_id is None:
        return "InstanceId can't be null."
    return _invalid_join(heartbeat) if epoch == JOIN_EPOCH else None


def _invalid_join(heartbeat: Heartbeat) -> str | None:
    if heartbeat.rebalance_timeout_ms == -1:
        return "RebalanceTimeoutMs must be provided in first request."
    if heartbeat.owned is None or heartbeat.owned:
        return "TopicPartitions must be empty when (re-)joining."
    if heartbeat.topic_names is None and heartbeat.pattern is None:
        return "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when (re-)joining."
    return None


def leaves(heartbeat: Heartbeat) -> bool:
    return heartbeat.epoch in (LEAVE_EPOCH, LEAVE_STATIC_EPOCH)
