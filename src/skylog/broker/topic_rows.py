"""Metadata's rows of topics in wire form, each encoded once.

A cluster of 10,000 topics with ten partitions each has 3 MB of metadata, which takes most of a second to encode, and
every client asks for its part again and again. A topic's row only changes with the topic.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

from skylog.broker.authorized_operations import NOT_ASKED_FOR, TOPIC_OPERATIONS
from skylog.cluster import ClusterImage, ClusterMetadata, TopicImage
from skylog.model import INTERNAL_TOPICS
from skylog.protocol.metadata import MetadataResponse, MetadataResponsePartition, MetadataResponseTopic

Rows = dict[str, tuple[TopicImage, bytes]]
"""By topic: the row, and the state of the topic that it shows."""


class TopicRows:
    """The rows by version, with and without authorized operations. Rows of deleted topics are dropped."""

    def __init__(self, metadata: ClusterMetadata) -> None:
        self._rows: dict[tuple[int, bool], Rows] = {}
        metadata.listen(self._on_image)

    def row(self, topic: TopicImage, version: int, with_operations: bool) -> bytes:
        rows = self._rows.setdefault((version, with_operations), {})
        known = rows.get(topic.name)
        if known is not None and known[0] is topic:
            return known[1]
        encoded = encoder(version)(_describe(topic, TOPIC_OPERATIONS if with_operations else NOT_ASKED_FOR))
        rows[topic.name] = topic, encoded
        return encoded

    def _on_image(self, before: ClusterImage, now: ClusterImage) -> None:
        for name in before.topics.keys() - now.topics.keys():
            for rows in self._rows.values():
                rows.pop(name, None)


@cache
def encoder(version: int) -> Callable[[MetadataResponseTopic], bytes]:
    """Puts a row into the wire form of `version`."""
    return MetadataResponse.item_encoder(MetadataResponseTopic, version)


def _describe(topic: TopicImage, operations: int) -> MetadataResponseTopic:
    return MetadataResponseTopic(
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=topic.name in INTERNAL_TOPICS,
        partitions=[
            MetadataResponsePartition(
                partition_index=index,
                leader_id=each.leader,
                leader_epoch=each.leader_epoch,
                replica_nodes=list(each.replicas),
                isr_nodes=list(each.in_sync_replicas),
            )
            for index, each in enumerate(topic.partitions)
        ],
        topic_authorized_operations=operations,
    )
