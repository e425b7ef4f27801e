"""Caches the encoded topic rows of Metadata responses.

A cluster of 10,000 topics with ten partitions each has 3 MB of metadata, which takes most of a second to encode. Every
client requests its part periodically. A topic's row changes with the topic, with the live brokers, and with the logs
that are offline on this broker.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from functools import cache
from typing import NamedTuple

from skylog.broker.partition_view import offline_here, partition_view, without_offline
from skylog.broker.replicas import Replicas
from skylog.cluster import ClusterImage, ClusterMetadata, TopicImage
from skylog.model import INTERNAL_TOPICS
from skylog.protocol.metadata import MetadataResponse, MetadataResponsePartition, MetadataResponseTopic


class _Row(NamedTuple):
    """An encoded row, and what it was made from."""

    topic: TopicImage
    offline: frozenset[int]
    encoded: bytes


class TopicRows:
    """Encoded rows by version, by authorized operations, and by topic.

    Rows of deleted topics are dropped. All are dropped when brokers come or go: most topics have replicas on them.
    """

    def __init__(self, node_id: int, metadata: ClusterMetadata, replicas: Replicas) -> None:
        self._node_id = node_id
        self._metadata = metadata
        self._replicas = replicas
        self._rows: dict[tuple[int, int], dict[str, _Row]] = {}
        metadata.listen(self._on_image)

    def row(self, topic: TopicImage, version: int, operations: int) -> bytes:
        rows = self._rows.setdefault((version, operations), {})
        known = rows.get(topic.name)
        offline = offline_here(topic, self._replicas)
        if known is not None and known.topic is topic and known.offline == offline:
            return known.encoded
        described = self._describe(topic, offline, version, operations)
        encoded = encoder(version)(described)
        rows[topic.name] = _Row(topic, offline, encoded)
        return encoded

    def _describe(
        self, topic: TopicImage, offline: Collection[int], version: int, operations: int
    ) -> MetadataResponseTopic:
        live = self._metadata.image.brokers
        views = [
            partition_view(each, live, self._node_id if index in offline else None)
            for index, each in enumerate(topic.partitions)
        ]
        if version == 0:
            views = [without_offline(view, live) for view in views]
        return MetadataResponseTopic(
            name=topic.name,
            topic_id=topic.topic_id,
            is_internal=topic.name in INTERNAL_TOPICS,
            partitions=[
                MetadataResponsePartition(
                    error_code=view.error_code,
                    partition_index=index,
                    leader_id=view.leader,
                    leader_epoch=view.leader_epoch,
                    replica_nodes=view.replicas,
                    isr_nodes=view.in_sync_replicas,
                    offline_replicas=view.offline_replicas,
                )
                for index, view in enumerate(views)
            ],
            topic_authorized_operations=operations,
        )

    def _on_image(self, before: ClusterImage, now: ClusterImage) -> None:
        if before.brokers.keys() != now.brokers.keys():
            self._rows.clear()
            return
        for name in before.topics.keys() - now.topics.keys():
            for rows in self._rows.values():
                rows.pop(name, None)


@cache
def encoder(version: int) -> Callable[[MetadataResponseTopic], bytes]:
    """Return a function that encodes a row for `version`."""
    return MetadataResponse.item_encoder(MetadataResponseTopic, version)
