"""Metrics of consumer groups, from the coordinator's state in memory."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncGenerator, Iterator, Mapping
from typing import TYPE_CHECKING, Final

from skylog.cluster import TopicImage
from skylog.groups import AnyGroup, CommittedOffset, ConsumerGroup
from skylog.groups.consumer import ConsumerGroupState
from skylog.groups.state import GroupState
from skylog.metric import Metric, Sample
from skylog.model import TopicPartition

if TYPE_CHECKING:
    from skylog.broker.broker import Broker

PIECE_SAMPLES: Final = 250
_PREFIX: Final = "kafka_coordinator_group_groupmetadatamanager"


async def group_metrics(broker: Broker, *, brief: bool) -> AsyncGenerator[Metric, None]:
    """Yield the metrics in pieces, since there is a value per group and partition; `brief` omits those values.

    Groups that are still loading are omitted, because their offsets are out of date.
    """
    groups = [(shard, group) for shard in broker.coordinator.shards() for group in shard.all_groups()]
    states = Counter(group.state for _, group in groups)
    yield Metric(f"{_PREFIX}_numgroups", "gauge", "Consumer groups.", [Sample(states.total(), {})])
    for state in GroupState:
        yield Metric(
            f"{_PREFIX}_numgroups{state.value.lower()}",
            "gauge",
            f"Groups of the classic protocol in the state {state.value}.",
            [Sample(states[state], {})],
        )
    kinds = Counter(_protocol(group) for _, group in groups)
    yield Metric(
        "kafka_server_group_coordinator_metrics_group_count",
        "gauge",
        "Groups by protocol.",
        [Sample(kinds[protocol], {"protocol": protocol}) for protocol in ("classic", "consumer")],
    )
    yield Metric(
        "kafka_server_group_coordinator_metrics_consumer_group_count",
        "gauge",
        "Groups of the consumer protocol by state.",
        [Sample(states[state], {"state": state.value.lower()}) for state in ConsumerGroupState],
    )
    if brief:
        return
    for at in range(0, len(groups) or 1, PIECE_SAMPLES):
        yield Metric(
            "kafka_consumergroup_members",
            "gauge",
            "Members of the group.",
            [
                Sample(len(group.members), {"consumergroup": group.group_id})
                for _, group in groups[at : at + PIECE_SAMPLES]
            ],
        )
    offsets: list[Sample] = []
    lags: list[Sample] = []
    for shard, group in groups:
        committed = dict(shard.offsets_of(group.group_id))
        for name in _partitions_read(group, committed, broker.metadata.image.topics):
            labels = {"consumergroup": group.group_id, "topic": name.topic, "partition": str(name.partition)}
            next_offset = 0
            if name in committed:
                next_offset = committed[name].offset
                offsets.append(Sample(next_offset, labels))
            partition = broker.replicas.find(name)
            if partition is not None:
                next_offset = max(next_offset, partition.log.log_start_offset)
                lags.append(Sample(max(partition.high_watermark - next_offset, 0), labels))
            if len(offsets) + len(lags) >= PIECE_SAMPLES:
                yield _offsets(offsets)
                yield _lags(lags)
                offsets, lags = [], []
    yield _offsets(offsets)
    yield _lags(lags)


def _partitions_read(
    group: AnyGroup, committed: Mapping[TopicPartition, CommittedOffset], topics: Mapping[str, TopicImage]
) -> Iterator[TopicPartition]:
    """Yield the partitions that a group reads, as `skylog groups describe` lists them.

    Members that subscribe share all partitions of a topic, so those without a commit count too. A group of consumers
    that assign partitions themselves has only those with a commit.
    """
    yield from committed
    if not isinstance(group, ConsumerGroup) and not group.protocol_type:
        return
    for topic in {name.topic for name in committed} | (group.subscribed_topics() or set()):
        image = topics.get(topic)
        names = (TopicPartition(topic, index) for index in range(len(image.partitions) if image else 0))
        yield from (name for name in names if name not in committed)


def _protocol(group: AnyGroup) -> str:
    return "consumer" if isinstance(group, ConsumerGroup) else "classic"


def _offsets(samples: list[Sample]) -> Metric:
    return Metric("kafka_consumergroup_current_offset", "gauge", "The group's committed offset.", samples)


def _lags(samples: list[Sample]) -> Metric:
    text = "Messages from the group's committed offset, or else from the log's start, to the end of the partition."
    return Metric("kafka_consumergroup_lag", "gauge", text, samples)
