"""The metrics of consumer groups, from what the coordinator has in memory."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncGenerator
from typing import TYPE_CHECKING, Final

from skylog.groups.state import GroupState
from skylog.metric import Metric, Sample

if TYPE_CHECKING:
    from skylog.broker.broker import Broker

PIECE_SAMPLES: Final = 250
_PREFIX: Final = "kafka_coordinator_group_groupmetadatamanager"


async def group_metrics(broker: Broker, *, brief: bool) -> AsyncGenerator[Metric, None]:
    """In pieces, as there is a value for each group and partition; `brief` leaves these out.

    Groups that are still being loaded are left out: their offsets are those of some time ago.
    """
    groups = broker.coordinator.loaded_groups()
    states = Counter(group.state for group in groups)
    yield Metric(f"{_PREFIX}_numgroups", "gauge", "Consumer groups.", [Sample(states.total(), {})])
    for state in GroupState:
        yield Metric(
            f"{_PREFIX}_numgroups{state.value.lower()}",
            "gauge",
            f"Consumer groups in the state {state.value}.",
            [Sample(states[state], {})],
        )
    if brief:
        return
    offsets: list[Sample] = []
    lags: list[Sample] = []
    for group in groups:
        for name, committed in list(broker.coordinator.groups.offsets_of(group.group_id).items()):
            labels = {"consumergroup": group.group_id, "topic": name.topic, "partition": str(name.partition)}
            offsets.append(Sample(committed.offset, labels))
            partition = broker.partitions.find(name)
            if partition is not None:
                next_offset = max(committed.offset, partition.log.log_start_offset)
                lags.append(Sample(max(partition.high_watermark - next_offset, 0), labels))
            if len(offsets) == PIECE_SAMPLES:
                yield _offsets(offsets)
                yield _lags(lags)
                offsets, lags = [], []
    yield _offsets(offsets)
    yield _lags(lags)


def _offsets(samples: list[Sample]) -> Metric:
    return Metric("kafka_consumergroup_current_offset", "gauge", "The offset that a group has committed.", samples)


def _lags(samples: list[Sample]) -> Metric:
    told = "Messages that a group has still to read, by what it has committed."
    return Metric("kafka_consumergroup_lag", "gauge", told, samples)
