"""The metrics of consumer groups, from what the coordinator has in memory."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import TYPE_CHECKING, Final

from skylog.groups.state import GroupState
from skylog.metric import Metric, Sample

if TYPE_CHECKING:
    from skylog.broker.broker import Broker

_AT_ONCE: Final = 50
_PREFIX: Final = "kafka_coordinator_group_groupmetadatamanager"


async def group_metrics(broker: Broker) -> list[Metric]:
    """Groups that are still being loaded are left out: their offsets are those of some time ago."""
    states: Counter[GroupState] = Counter()
    offsets: list[Sample] = []
    lags: list[Sample] = []
    for group in broker.coordinator.loaded_groups():
        states[group.state] += 1
        for number, (name, committed) in enumerate(list(broker.coordinator.groups.offsets_of(group.group_id).items())):
            if number % _AT_ONCE == _AT_ONCE - 1:
                await asyncio.sleep(0)
            labels = {"consumergroup": group.group_id, "topic": name.topic, "partition": str(name.partition)}
            offsets.append(Sample(committed.offset, labels))
            partitions = broker.partitions.of_topic(name.topic)
            if name.partition < len(partitions):
                partition = partitions[name.partition]
                next_offset = max(committed.offset, partition.log.log_start_offset)
                lags.append(Sample(max(partition.high_watermark - next_offset, 0), labels))
        await asyncio.sleep(0)
    by_state = [
        Metric(
            f"{_PREFIX}_numgroups{state.value.lower()}",
            "gauge",
            f"Consumer groups in the state {state.value}.",
            [Sample(states[state], {})],
        )
        for state in GroupState
    ]
    return [
        Metric(f"{_PREFIX}_numgroups", "gauge", "Consumer groups.", [Sample(states.total(), {})]),
        *by_state,
        Metric("kafka_consumergroup_current_offset", "gauge", "The offset that a group has committed.", offsets),
        Metric(
            "kafka_consumergroup_lag",
            "gauge",
            "Messages that a group has still to read, by what it has committed.",
            lags,
        ),
    ]
