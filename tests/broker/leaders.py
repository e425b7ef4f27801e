"""Elects leaders of the partitions of internal topics, as a controller would: in the metadata store."""

from __future__ import annotations

import dataclasses

from skylog.broker import Broker
from skylog.broker.partition import Partition
from skylog.broker.state_topic import partition_of
from skylog.cluster import TopicImage
from skylog.model import CONSUMER_OFFSETS_TOPIC, TopicPartition

OURS, THEIRS = 1, 2


def offsets_topic(broker: Broker) -> TopicImage:
    return broker.metadata.image.topics[CONSUMER_OFFSETS_TOPIC]


def index_of(broker: Broker, group: str) -> int:
    return partition_of(group, len(offsets_topic(broker).partitions))


def replica_of(broker: Broker, group: str) -> Partition:
    """Return this broker's replica of a group's partition."""
    partition = broker.replicas.find(TopicPartition(CONSUMER_OFFSETS_TOPIC, index_of(broker, group)))
    assert partition is not None
    return partition


async def elect(
    broker: Broker,
    leader: int,
    *indexes: int,
    in_sync: tuple[int, ...] = (OURS,),
    topic_name: str = CONSUMER_OFFSETS_TOPIC,
) -> None:
    """Give partitions a leader in a new epoch. With one replica in sync, the broker commits alone."""
    topic = broker.metadata.image.topics[topic_name]
    partitions = tuple(
        dataclasses.replace(
            each,
            leader=leader,
            leader_epoch=each.leader_epoch + 1,
            replicas=(OURS, THEIRS),
            in_sync_replicas=in_sync,
        )
        if index in indexes
        else each
        for index, each in enumerate(topic.partitions)
    )
    await broker.metadata.change_topic(topic, lambda now: dataclasses.replace(now, partitions=partitions))


def truncate(broker: Broker, group: str, end_offset: int) -> None:
    """Cut off records of a group's partition, as a follower does when its leader does not have them."""
    partition = replica_of(broker, group)
    assert not partition.is_leader
    partition.log.truncate_to(end_offset, broker.clock.now_ms())
