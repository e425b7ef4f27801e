"""Selects messages of a topic: partitions, and a range of offsets or times."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from skylog.client import Admin, OffsetRange
from skylog.console.server.fields import FieldError, Fields
from skylog.model import TopicPartition

ALL: Final = "all"
_PARTITION: Final = re.compile(r"\d{1,9}", re.ASCII)


@dataclass(frozen=True, slots=True)
class MessageSelection:
    """`partitions` is None for all. Offsets apply to every partition. Ends are exclusive."""

    partitions: tuple[int, ...] | None = None
    from_offset: int | None = None
    to_offset: int | None = None
    since_ms: int | None = None
    until_ms: int | None = None


def parse_selection(fields: Fields) -> MessageSelection:
    """Parse `partition` (repeatable, or a list with commas), `from`, `to`, `since` and `until`."""
    if fields.has("from") and fields.has("since"):
        raise FieldError("'from' is an offset and 'since' a time: set only one of them")
    if fields.has("to") and fields.has("until"):
        raise FieldError("'to' is an offset and 'until' a time: set only one of them")
    return MessageSelection(
        parse_partitions(fields.all("partition")),
        fields.optional_integer("from", low=0),
        fields.optional_integer("to", low=0),
        fields.time_ms("since") if fields.has("since") else None,
        fields.time_ms("until") if fields.has("until") else None,
    )


def parse_partitions(texts: Iterable[str]) -> tuple[int, ...] | None:
    numbers = set()
    for text in (part.strip() for each in texts for part in each.split(",")):
        if text in (ALL, ""):
            continue
        if not _PARTITION.fullmatch(text):
            raise FieldError(f"'partition' must be a number or '{ALL}', not '{text}'")
        numbers.add(int(text))
    return tuple(sorted(numbers)) or None


def choose(admin: Admin, topic: str, partitions: Iterable[int] | None) -> dict[TopicPartition, OffsetRange]:
    """Return the offsets of the given partitions, or of all partitions that have a leader.

    Raises TopicNotFoundError, and FieldError for an unknown partition.
    """
    found = admin.describe_topic(topic)
    known = {each.partition: each for each in found.topic_partitions}
    led = [each.index for each in found.partitions if each.leader >= 0]
    for number in partitions or ():
        if number not in known:
            raise FieldError(f"topic '{topic}' has no partition {number}: it has {len(known)}, numbered from 0")
    return admin.offset_ranges([known[number] for number in sorted(led if partitions is None else partitions)])


def resolve(admin: Admin, topic: str, selection: MessageSelection) -> dict[TopicPartition, OffsetRange]:
    """Return the selected offsets, limited to those that the topic holds."""
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
    """Return the first offset at or after a time; the end if there is none."""
    found = admin.offsets_at(list(held), time_ms)
    return {key: held[key].end_offset if at is None else at for key, at in found.items()}


def clamp(offset: int, held: OffsetRange) -> int:
    return min(max(offset, held.start_offset), held.end_offset)
