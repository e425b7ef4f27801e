"""Where to start and where to end: what the options say, and the offsets that follow from it."""

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
    """A place that every partition has."""

    EARLIEST = "earliest"
    LATEST = "latest"
    COMMITTED = "committed"


@dataclass(frozen=True, slots=True)
class AtOffsets:
    """An offset for each partition, with the two special ones."""

    option: str
    offsets: Mapping[TopicPartition, int]


@dataclass(frozen=True, slots=True)
class AtTimes:
    """A time for each partition, or for all of them where `times` is None."""

    option: str
    time_ms: int = 0
    times: Mapping[TopicPartition, int] | None = None


Position = Anchor | AtOffsets | AtTimes


def starting_position(options: ReadOptions, default: Anchor) -> Position:
    """What the starting options say. A time for all goes before times, and those before offsets."""
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
    """A batch cannot start at the end or end at the start. Raises OptionError."""
    if start is Anchor.LATEST or (isinstance(start, AtOffsets) and LATEST_OFFSET in start.offsets.values()):
        raise OptionError("startingOffsets cannot be latest for a batch: nothing would be read")
    if end in (Anchor.EARLIEST, Anchor.COMMITTED) or (
        isinstance(end, AtOffsets) and EARLIEST_OFFSET in end.offsets.values()
    ):
        raise OptionError("endingOffsets of a batch can be latest or offsets, not earliest or committed")


def resolve(
    cluster: Cluster, partitions: Sequence[TopicPartition], position: Position, options: ReadOptions
) -> Offsets:
    """The offset of each of `partitions`. Raises OptionError where the options don't fit the partitions."""
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
    """`{"topic": {"0": 23}}`, as partitions and numbers. Raises OptionError."""
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
    """The form that Spark keeps in a checkpoint; sorted, because Spark compares it as text."""
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
            filter(None, (missing and f"says nothing of {missing}", surplus and f"names {surplus}, not read here"))
        )
        raise OptionError(f"{option} {what}: name every partition, offset -2 is the earliest and -1 the latest")


def _at_times(
    cluster: Cluster, partitions: Sequence[TopicPartition], times: Mapping[TopicPartition, int], *, is_strict: bool
) -> Offsets:
    found = cluster.at_times({key: times[key] for key in partitions})
    late = [key for key, offset in found.items() if offset is None]
    if late and is_strict:
        raise OptionError(
            f"{late[0]} has no record at or after {times[late[0]]} ms; "
            "startingOffsetsByTimestampStrategy=latest starts at its end"
        )
    ends = cluster.latest(late)
    return {key: ends[key] if offset is None else offset for key, offset in found.items()}


def _committed(cluster: Cluster, partitions: Sequence[TopicPartition], options: ReadOptions) -> Offsets:
    """What the group has committed; where it has not, the start of the log, so that nothing is missed."""
    group = options.committing_group
    if group is None:
        raise OptionError("startingOffsets=committed needs the option groupId: whose offsets?")
    found = cluster.committed(group, partitions)
    return cluster.earliest([key for key in partitions if key not in found]) | found
