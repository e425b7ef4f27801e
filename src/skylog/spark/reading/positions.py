"""Start and end positions: parses them from the options and resolves them to offsets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final

import orjson

from skylog.model import TopicPartition
from skylog.spark.errors import OptionError
from skylog.spark.reading.cluster import Cluster
from skylog.spark.reading.options import ReadOptions

Offsets = dict[TopicPartition, int]

EARLIEST_OFFSET: Final = -2
LATEST_OFFSET: Final = -1


class Anchor(Enum):
    """A named position in every partition."""

    EARLIEST = "earliest"
    LATEST = "latest"
    COMMITTED = "committed"


@dataclass(frozen=True, slots=True)
class AtOffsets:
    """An offset for each partition, or EARLIEST_OFFSET or LATEST_OFFSET."""

    option: str
    offsets: Mapping[TopicPartition, int]


@dataclass(frozen=True, slots=True)
class AtTimes:
    """A time for each partition, or `time_ms` for all partitions if `times` is None."""

    option: str
    time_ms: int = 0
    times: Mapping[TopicPartition, int] | None = None


Position = Anchor | AtOffsets | AtTimes


def starting_position(options: ReadOptions, default: Anchor) -> Position:
    """Return the starting position. startingTimestamp overrides times by partition, which override offsets."""
    if options.starting_timestamp is not None:
        return AtTimes("startingTimestamp", options.starting_timestamp)
    if options.starting_offsets_by_timestamp is not None:
        name = "startingOffsetsByTimestamp"
        return AtTimes(name, times=parse_offsets(name, options.starting_offsets_by_timestamp))
    return _position("startingOffsets", options.starting_offsets, default)


def ending_position(options: ReadOptions) -> Position:
    if options.ending_timestamp is not None:
        return AtTimes("endingTimestamp", options.ending_timestamp)
    if options.ending_offsets_by_timestamp is not None:
        name = "endingOffsetsByTimestamp"
        return AtTimes(name, times=parse_offsets(name, options.ending_offsets_by_timestamp))
    return _position("endingOffsets", options.ending_offsets, Anchor.LATEST)


def check_batch(start: Position, end: Position) -> None:
    """Raise OptionError for a batch that starts at latest, or ends at earliest or committed."""
    if start is Anchor.LATEST or (isinstance(start, AtOffsets) and LATEST_OFFSET in start.offsets.values()):
        raise OptionError("startingOffsets cannot be latest for a batch: it would read nothing")
    if end in (Anchor.EARLIEST, Anchor.COMMITTED) or (
        isinstance(end, AtOffsets) and EARLIEST_OFFSET in end.offsets.values()
    ):
        raise OptionError("endingOffsets must be latest or offsets, not earliest or committed")


def resolve(
    cluster: Cluster, partitions: Sequence[TopicPartition], position: Position, options: ReadOptions
) -> Offsets:
    """Return the offset of each partition. Raises OptionError if the options do not match the partitions."""
    match position:
        case Anchor.EARLIEST:
            return cluster.earliest(partitions)
        case Anchor.LATEST:
            return cluster.latest(partitions)
        case Anchor.COMMITTED:
            return _committed(cluster, partitions, options)
        case AtOffsets(option, offsets):
            _check_complete(option, offsets, partitions)
            first = cluster.earliest([key for key in partitions if offsets[key] == EARLIEST_OFFSET])
            last = cluster.latest([key for key in partitions if offsets[key] == LATEST_OFFSET])
            return {key: offsets[key] for key in partitions} | first | last
        case AtTimes(option, time_ms, times):
            if times is None:
                times = dict.fromkeys(partitions, time_ms)
            _check_complete(option, times, partitions)
            return _at_times(cluster, partitions, times, is_strict=_is_strict(option, options))


def parse_offsets(option: str, text: str) -> Offsets:
    """Parse `{"topic": {"0": 23}}` into numbers by partition. Raises OptionError."""
    try:
        found = orjson.loads(text)
        return {
            TopicPartition(topic, int(partition)): _number(number)
            for topic, numbers in found.items()
            for partition, number in numbers.items()
        }
    except (ValueError, AttributeError, TypeError):
        raise OptionError(f'{option}: expected JSON like {{"topic": {{"0": 23, "1": -2}}}}, found {text}') from None


def offsets_json(offsets: Mapping[TopicPartition, int]) -> dict[str, dict[str, int]]:
    """Return the form that Spark stores in a checkpoint. It is sorted, because Spark compares it as text."""
    found: dict[str, dict[str, int]] = {}
    for key in sorted(offsets):
        found.setdefault(key.topic, {})[str(key.partition)] = offsets[key]
    return found


def offsets_from_json(found: Mapping[str, Mapping[str, int]]) -> Offsets:
    return {TopicPartition(topic, int(number)): at for topic, rows in found.items() for number, at in rows.items()}


def _position(option: str, text: str | None, default: Anchor) -> Position:
    if text is None:
        return default
    word = text.strip().lower()
    if word in {each.value for each in Anchor}:
        return Anchor(word)
    if not word.startswith("{"):
        raise OptionError(f"{option}={text}: expected {', '.join(each.value for each in Anchor)} or JSON")
    return AtOffsets(option, parse_offsets(option, text))


def _number(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(value)
    return value


def _is_strict(option: str, options: ReadOptions) -> bool:
    return option.startswith("starting") and options.starting_strategy == "error"


def _check_complete(option: str, given: Mapping[TopicPartition, int], partitions: Sequence[TopicPartition]) -> None:
    if given.keys() != set(partitions):
        missing = ", ".join(map(str, sorted(set(partitions) - given.keys())))
        surplus = ", ".join(map(str, sorted(given.keys() - set(partitions))))
        what = " and ".join(
            filter(None, (missing and f"has no entry for {missing}", surplus and f"names {surplus}, which is not read"))
        )
        raise OptionError(f"{option} {what}: name every partition; use -2 for earliest and -1 for latest")


def _at_times(
    cluster: Cluster, partitions: Sequence[TopicPartition], times: Mapping[TopicPartition, int], *, is_strict: bool
) -> Offsets:
    found = cluster.at_times({key: times[key] for key in partitions})
    late = [key for key, offset in found.items() if offset is None]
    if late and is_strict:
        raise OptionError(
            f"{late[0]} has no record at or after {times[late[0]]} ms; set "
            "startingOffsetsByTimestampStrategy=latest to start at its end"
        )
    ends = cluster.latest(late)
    return {key: ends[key] if offset is None else offset for key, offset in found.items()}


def _committed(cluster: Cluster, partitions: Sequence[TopicPartition], options: ReadOptions) -> Offsets:
    """Return the group's committed offsets, or the start of the log if there is none, so that no record is missed."""
    group = options.committing_group
    if group is None:
        raise OptionError("startingOffsets=committed requires the option groupId")
    found = cluster.committed(group, partitions)
    return cluster.earliest([key for key in partitions if key not in found]) | found
