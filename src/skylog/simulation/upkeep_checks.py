"""What may be missing after compaction and retention, and what must not be left of deleted topics and moved replicas.

Pure functions, like those of `checks.py`. The first two return a history without what was allowed to go, so that the
ordinary rules apply to the rest.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import replace

from skylog.simulation.checks import Stored
from skylog.simulation.history import UNKNOWN, History, Log, Message, Value

LastValues = Mapping[bytes, tuple[int, bytes]]
"""The offset and the value of the last record of each key."""


def without_superseded(
    history: History, stored: Stored, key_of: Callable[[Value], object]
) -> tuple[History, dict[int, dict[int, Value]]]:
    """Return history and logs without the messages that compaction may remove: a later one of their key is stored.

    Some may still be there, because replicas compact at different times. So a reader may have skipped them.
    """
    last = {(at, key_of(value)): offset for at, log in stored.items() for offset, value in sorted(log.items())}

    def is_kept(message: Message) -> bool:
        found = stored[message.partition].get(message.offset, message.value)
        return found != message.value or message.offset >= last.get((message.partition, key_of(message.value)), UNKNOWN)

    kept = {at: {o: value for o, value in log.items() if last[at, key_of(value)] == o} for at, log in stored.items()}
    return _filtered(history, is_kept), kept


def without_deleted(history: History, stored: Stored, starts: Mapping[int, int]) -> History:
    """Return a history without the messages below the start of their log."""

    def is_kept(message: Message) -> bool:
        return message.offset >= starts[message.partition] or _is_stored(message, stored)

    return _filtered(history, is_kept)


def _is_stored(message: Message, stored: Stored) -> bool:
    return stored[message.partition].get(message.offset) == message.value


def _filtered(history: History, is_kept: Callable[[Message], bool]) -> History:
    kept = History()
    kept.__dict__.update(history.__dict__)
    kept.acknowledged = [message for message in history.acknowledged if is_kept(message)]
    kept.assignments = [
        replace(each, messages=[message for message in each.messages if is_kept(message)])
        for each in history.assignments
    ]
    return kept


def undeleted(deleted: Mapping[int, int], starts: Mapping[int, int]) -> list[str]:
    """A log that begins before an offset up to which its records were deleted on request."""
    return [
        f"undeleted: partition {partition} begins at {starts[partition]}, but everything below {offset} was deleted"
        for partition, offset in deleted.items()
        if starts[partition] < offset
    ]


def missing_keys(history: History, stored: Stored, key_of: Callable[[Value], object]) -> list[str]:
    """A key that was acknowledged, but of which compaction has left nothing."""
    present = {(partition, key_of(value)) for partition, log in stored.items() for value in log.values()}
    wanted = {(message.partition, key_of(message.value)) for message in history.acknowledged}
    return [f"missing key: {key} of partition {partition}" for partition, key in sorted(wanted - present, key=str)]


def differing_last_values(name: str, replicas: Mapping[int, LastValues]) -> list[str]:
    """Replicas of a compacted log that do not end with the same value for each key. They compact at other times."""
    (first, expected), *others = replicas.items()
    found = []
    for node, values in others:
        keys = sorted(key for key in values.keys() | expected.keys() if values.get(key) != expected.get(key))
        if keys:
            found.append(f"{name}: replicas {first} and {node} differ in {len(keys)} keys: {keys[:10]}")
    return found


def missing_copies(name: str, visible: Log, replica: Log) -> list[str]:
    """Committed copies that compaction has removed from a replica, or that it has at another offset."""
    missing = [offset for offset, value in visible.items() if replica.get(offset) != value]
    return [f"{name} lacks {len(missing)} of {len(visible)} copies: {missing[:10]}"] if missing else []


def resurrected(stored: Stored, former: Collection[Value]) -> list[str]:
    """A value that was stored in a deleted topic of the same name. Requests that came too late may be stored here."""
    return [
        f"resurrected: {value} at {partition}:{offset}, which was stored in a deleted topic"
        for partition, log in stored.items()
        for offset, value in log.items()
        if value in former
    ]


def strays(folders: Mapping[int, Collection[str]], wanted: Mapping[int, Collection[str]]) -> list[str]:
    """A log on a broker that has no replica of it: of a deleted topic, or one that has moved away."""
    return [
        f"stray: broker {node} keeps {name}"
        for node, names in folders.items()
        for name in sorted(set(names) - set(wanted[node]))
    ]
