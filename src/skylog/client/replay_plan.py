"""Plans a replay before it starts: which offsets of which partitions, and their targets."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import Enum
from typing import Final

from skylog.client.admin import Admin
from skylog.client.topic import OffsetRange
from skylog.errors import ErrorCode, KafkaError, SkylogError
from skylog.model import TopicPartition

ORIGINS: Final = "the topics they came from"
"""The target of a plan that sends dead letters back, for display."""


class LogEdge(Enum):
    """The start or end of the log at the time of planning."""

    START = "start"
    END = "end"


Place = int | Mapping[int, int] | datetime | LogEdge
"""The start or end of a range: one offset for all partitions, offsets by partition, a time, or a log edge."""


@dataclass(frozen=True, slots=True)
class ReplayPlan:
    """The messages of topic `source` to send to topic `target`.

    `new_partitions` is the number of partitions to create the target with, None if it exists. With `keeps_partitions`
    a message goes to the partition with the same number, otherwise to the one that its key selects.

    With `is_back`, `source` is a dead-letter topic: each message goes back to the topic that it came from, and to the
    same partition there with `keeps_partitions`, without the headers of its failure.
    """

    source: str
    target: str
    ranges: Mapping[TopicPartition, OffsetRange]
    keeps_partitions: bool
    new_partitions: int | None
    is_back: bool = False

    @property
    def offset_count(self) -> int:
        """The number of offsets in the ranges. There may be fewer messages: compaction removes some."""
        return sum(map(len, self.ranges.values()))


def plan_replay(
    source_admin: Admin,
    target_admin: Admin,
    source: str,
    target: str,
    *,
    start: Place,
    end: Place = LogEdge.END,
    partitions: Iterable[int] | None = None,
    keep_partitions: bool | None = None,
) -> ReplayPlan:
    """Resolve the ranges to offsets; changes nothing.

    By default partition numbers are kept if both topics have the same number of partitions. Raises TopicNotFoundError
    if the source does not exist, and SkylogError for offsets that it does not hold and for partitions that one of the
    topics does not have.
    """
    known = {each.partition: each for each in source_admin.describe_topic(source).topic_partitions}
    ranges = _ranges(source_admin, source, known, start, end, partitions)
    chosen = {key.partition for key in ranges}
    target_count = next((len(each.partitions) for each in target_admin.list_topics() if each.name == target), None)
    keeps = target_count in (None, len(known)) if keep_partitions is None else keep_partitions
    if keeps and target_count is not None and max(chosen, default=0) >= target_count:
        raise SkylogError(
            f"partition {max(chosen)} of topic '{source}' cannot be kept: topic '{target}' has {target_count}, "
            "numbered from 0; send by key instead, or add partitions"
        )
    return ReplayPlan(source, target, ranges, keeps, len(known) if target_count is None else None)


def plan_return(
    admin: Admin,
    source: str,
    *,
    start: Place,
    end: Place = LogEdge.END,
    partitions: Iterable[int] | None = None,
    keep_partitions: bool = True,
) -> ReplayPlan:
    """Plan to send dead letters back to the topics that they came from; changes nothing. Raises like `plan_replay`."""
    known = {each.partition: each for each in admin.describe_topic(source).topic_partitions}
    ranges = _ranges(admin, source, known, start, end, partitions)
    return ReplayPlan(source, ORIGINS, ranges, keep_partitions, None, is_back=True)


def _ranges(
    admin: Admin,
    topic: str,
    known: Mapping[int, TopicPartition],
    start: Place,
    end: Place,
    partitions: Iterable[int] | None,
) -> dict[TopicPartition, OffsetRange]:
    """Return the offsets to read in each partition."""
    chosen = set(known if partitions is None else partitions)
    for place in (start, end):
        if isinstance(place, Mapping):
            chosen = set(place) if partitions is None else chosen & set(place)
    _check_partitions(topic, known, chosen)
    held = admin.offset_ranges([known[number] for number in sorted(chosen)])
    starts, ends = _resolve(admin, held, start), _resolve(admin, held, end)
    if held and all(starts[key] > ends[key] for key in held):
        key = next(iter(held))
        raise SkylogError(f"the range ends before it begins: {key} from offset {starts[key]} to {ends[key]}")
    return {key: OffsetRange(starts[key], max(starts[key], ends[key])) for key in held}


def _check_partitions(topic: str, known: Mapping[int, TopicPartition], chosen: Iterable[int]) -> None:
    for number in chosen:
        if number not in known:
            raise SkylogError(f"topic '{topic}' has no partition {number}: it has {len(known)}, numbered from 0")


def _resolve(admin: Admin, held: Mapping[TopicPartition, OffsetRange], place: Place) -> dict[TopicPartition, int]:
    match place:
        case LogEdge.START:
            return {key: offsets.start_offset for key, offsets in held.items()}
        case LogEdge.END:
            return {key: offsets.end_offset for key, offsets in held.items()}
        case datetime():
            found = admin.offsets_at(list(held), int(place.timestamp() * 1000))
            return {key: held[key].end_offset if at is None else at for key, at in found.items()}
        case int():
            return {key: _checked(key, offsets, place) for key, offsets in held.items()}
        case _:
            return {key: _checked(key, offsets, place[key.partition]) for key, offsets in held.items()}


def _checked(key: TopicPartition, held: OffsetRange, offset: int) -> int:
    if held.start_offset <= offset <= held.end_offset:
        return offset
    raise KafkaError(
        ErrorCode.OFFSET_OUT_OF_RANGE,
        f"{key} holds the offsets from {held.start_offset} up to {held.end_offset}, not {offset}; "
        "choose another offset, or other partitions",
    )
