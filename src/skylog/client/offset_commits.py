"""Commits the offsets of a group from outside, over a connection of its own to the coordinator.

librdkafka's `alter_consumer_group_offsets` is not used: it aborts the process if the coordinator goes away meanwhile.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping

from skylog.client.cluster import ClusterBroker
from skylog.client.peer_requests import ask
from skylog.errors import ErrorCode
from skylog.model import TopicPartition
from skylog.net.peer import PeerSecurity
from skylog.protocol.offset_commit import OffsetCommitRequest, OffsetCommitRequestPartition, OffsetCommitRequestTopic


def commit_offsets(
    coordinator: tuple[str, int],
    group: str,
    offsets: Mapping[TopicPartition, int],
    timeout_s: float,
    security: PeerSecurity | None,
) -> dict[TopicPartition, ErrorCode]:
    """Commit, and return the partitions that were rejected. Raises PeerError if the outcome is unknown."""
    rows: defaultdict[str, list[OffsetCommitRequestPartition]] = defaultdict(list)
    for key, offset in offsets.items():
        rows[key.topic].append(OffsetCommitRequestPartition(partition_index=key.partition, committed_offset=offset))
    topics = [OffsetCommitRequestTopic(name=name, partitions=partitions) for name, partitions in rows.items()]
    host, port = coordinator
    request = OffsetCommitRequest(group_id=group, topics=topics)
    response = ask(ClusterBroker(-1, host, port, None), request, timeout_s, security)
    return {
        TopicPartition(topic.name, row.partition_index): _code(row.error_code)
        for topic in response.topics
        for row in topic.partitions
        if row.error_code
    }


def _code(number: int) -> ErrorCode:
    return ErrorCode(number) if number in ErrorCode._value2member_map_ else ErrorCode.UNKNOWN_SERVER_ERROR
