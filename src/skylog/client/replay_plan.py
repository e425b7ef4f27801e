"""What a replay will do, decided before it begins: which offsets of which partitions, and where they go."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import Enum

from skylog.client.admin import Admin
from skylog.client.topic import OffsetRange
from skylog.errors import ErrorCode, KafkaError, SkylogError
from skylog.model import TopicPartition


class LogEdge(Enum):
    """An end of the log, as it is when the plan is made."""

    START = "start"
    END = "end"


Place = int | Mapping[int, int] | datetime | LogEdge
"""Where a range begins or ends: an offset in every partition, offsets by partition, a time, or an end of the log."""


@dataclass(frozen=True, slots=True)
class ReplayPlan:
    """Which messages of topic `source` are sent to topic `target`.

    `new_partitions` is how many the target is created with, None where it is there. Where `keeps_partitions` holds, a
    message goes to the partition of the same number, otherwise to the one that its key belongs to.
    """

    source: str
    target: str
    ranges: Mapping[TopicPartition, OffsetRange]
    keeps_partitions: bool
    new_partitions: int | None

    @property
    def offset_count(self) -> int:
        """How many offsets are covered. There may be fewer messages: not every offset has one after compaction."""
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
    """Find the offsets; changes nothing. Partition numbers are kept by default if both topics have equally many.

    Raises TopicNotFoundError for the source, and SkylogError for offsets that it does not hold and for partitions that
    one of the topics does not have.
    """
    known = {each.partition: each for each in source_admin.describe_topic(source).topic_partitions}
    chosen = set(known if partitions is None else partitions)
    for place in (start, end):
        if isinstance(place, Mapping):
            chosen = set(place) if partitions is None else chosen & set(place)
    _check_partitions(source, known, chosen)
    held = source_admin.offset_ranges([known[number] for number in sorted(chosen)])
    starts, ends = _resolve(source_admin, held, start), _resolve(source_admin, held, end)
    ranges = {key: OffsetRange(starts[key], max(starts[key], ends[key])) for key in held}
    if held and all(starts[key] > ends[key] for key in held):
        key = next(iter(held))
        raise SkylogError(f"the range ends before it begins: {key} from offset {starts[key]} to {ends[key]}")
    target_count = next((len(each.partitions) for each in target_admin.list_topics() if each.name == target), None)
    keeps = target_count in (None, len(known)) if keep_partitions is None else keep_partitions
    if keeps and target_count is not None and max(chosen, default=0) >= target_count:
        raise SkylogError(
            f"partition {max(chosen)} of topic '{source}' cannot be kept: topic '{target}' has {target_count}, "
            "numbered from 0; send by key instead, or give it more"
        )
    return ReplayPlan(source, target, ranges, keeps, len(known) if target_count is None else None)


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
