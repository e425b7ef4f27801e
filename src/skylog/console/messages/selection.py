"""Which messages of a topic are meant: partitions, and a range by offsets or by times."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from skylog.client import Admin, OffsetRange
from skylog.console.fields import FieldError, Fields
from skylog.model import TopicPartition

ALL: Final = "all"
_PARTITION: Final = re.compile(r"\d{1,9}", re.ASCII)


@dataclass(frozen=True, slots=True)
class Selection:
    """`partitions` is None for all of them. Offsets hold in every partition; an end is not part of the range."""

    partitions: tuple[int, ...] | None = None
    from_offset: int | None = None
    to_offset: int | None = None
    since_ms: int | None = None
    until_ms: int | None = None


def read_selection(fields: Fields) -> Selection:
    """From `partition` (again and again, or a list with commas), `from`, `to`, `since` and `until`."""
    if fields.has("from") and fields.has("since"):
        raise FieldError("'from' is an offset and 'since' a time: give one of them")
    if fields.has("to") and fields.has("until"):
        raise FieldError("'to' is an offset and 'until' a time: give one of them")
    return Selection(
        read_partitions(fields.all("partition")),
        fields.optional_integer("from", low=0),
        fields.optional_integer("to", low=0),
        fields.time_ms("since") if fields.has("since") else None,
        fields.time_ms("until") if fields.has("until") else None,
    )


def read_partitions(texts: Iterable[str]) -> tuple[int, ...] | None:
    numbers = set()
    for text in (part.strip() for each in texts for part in each.split(",")):
        if text in (ALL, ""):
            continue
        if not _PARTITION.fullmatch(text):
            raise FieldError(f"'partition' must be a number or '{ALL}', not '{text}'")
        numbers.add(int(text))
    return tuple(sorted(numbers)) or None


def choose(admin: Admin, topic: str, partitions: Iterable[int] | None) -> dict[TopicPartition, OffsetRange]:
    """What the chosen partitions hold; without a choice, all that have a leader.

    Raises TopicNotFoundError, and FieldError for a partition that is not there.
    """
    found = admin.describe_topic(topic)
    known = {each.partition: each for each in found.topic_partitions}
    led = [each.index for each in found.partitions if each.leader >= 0]
    for number in partitions or ():
        if number not in known:
            raise FieldError(f"topic '{topic}' has no partition {number}: it has {len(known)}, numbered from 0")
    return admin.offset_ranges([known[number] for number in sorted(led if partitions is None else partitions)])


def resolve(admin: Admin, topic: str, selection: Selection) -> dict[TopicPartition, OffsetRange]:
    """The offsets that are meant, as far as the topic holds them."""
    held = choose(admin, topic, selection.partitions)
    starts = {key: offsets.start_offset for key, offsets in held.items()}
    ends = {key: offsets.end_offset for key, offsets in held.items()}
    if selection.from_offset is not None:
        starts = dict.fromkeys(held, selection.from_offset)
    elif selection.since_ms is not None:
        starts = offsets_at(admin, held, selection.since_ms)
    if selection.to_offset is not None:
        ends = dict.fromkeys(held, selection.to_offset)
    elif selection.until_ms is not None:
        ends = offsets_at(admin, held, selection.until_ms)
    ranges = {}
    for key, offsets in held.items():
        start_offset = clamp(starts[key], offsets)
        ranges[key] = OffsetRange(start_offset, max(clamp(ends[key], offsets), start_offset))
    return ranges


def offsets_at(admin: Admin, held: dict[TopicPartition, OffsetRange], time_ms: int) -> dict[TopicPartition, int]:
    """The first offset at or after a time; the end where there is none."""
    found = admin.offsets_at(list(held), time_ms)
    return {key: held[key].end_offset if at is None else at for key, at in found.items()}


def clamp(offset: int, held: OffsetRange) -> int:
    return min(max(offset, held.start_offset), held.end_offset)
