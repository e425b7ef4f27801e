"""The rules for histories: pure functions of a history and of the topic as it is read after everything has healed.

Each returns one line per violation. The names are those of Jepsen's workload for Kafka where it has one.
"""

from __future__ import annotations

import itertools
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Container, Iterable, Mapping, Sequence
from typing import Final

from skylog.simulation.history import UNKNOWN, Answer, History, Log, Outcome, Value, metadata_of

SHOWN: Final = 5
"""How many values a violation names."""

Stored = Mapping[int, Log]
"""The logs of a topic by partition."""


def check(history: History, stored: Stored) -> None:
    """Raise AssertionError if a history has violations, with the first of them."""
    found = violations(history, stored)
    if found:
        raise AssertionError("\n".join([f"{len(found)} violations:", *found[:30]]))


def violations(history: History, stored: Stored, ends: Mapping[int, int] | None = None) -> list[str]:
    """Return all violations of a history, given the topic as it is in the end.

    `ends` are the end offsets of the partitions, where they are not simply after the last value.
    """
    ends = ends if ends is not None else {partition: _end(log) for partition, log in stored.items()}
    return [
        *history.failed,
        *lost_writes(history, stored),
        *duplicates(stored),
        *disorder(stored),
        *unseen(history, stored),
        *inconsistent_reads(history, stored),
        *nonmonotonic_polls(history, stored),
        *rewound_assignments(history),
        *decreasing("the committed offset", history.committed, ends, history.given_up),
        *wrong_metadata(history.committed),
        *decreasing("the high watermark", history.watermarks, ends),
    ]


# -- what is stored


def lost_writes(history: History, stored: Stored) -> list[str]:
    """An acknowledged message that is not where the acknowledgement said."""
    known = [message for message in history.acknowledged if message.offset != UNKNOWN]
    unknown = [message for message in history.acknowledged if message.offset == UNKNOWN]
    present = {(partition, value) for partition, log in stored.items() for value in log.values()}
    return [
        *(
            f"lost write: {found} is at {message}"
            for message in known
            if (found := stored[message.partition].get(message.offset)) != message.value
        ),
        *(f"lost write: {message}" for message in unknown if (message.partition, message.value) not in present),
    ]


def duplicates(stored: Stored) -> list[str]:
    """A value in two places. The producers are idempotent."""
    places: defaultdict[Value, list[tuple[int, int]]] = defaultdict(list)
    for partition, log in stored.items():
        for offset, value in log.items():
            places[value].append((partition, offset))
    return [f"duplicate: {value} is at {found}" for value, found in places.items() if len(found) > 1]


def disorder(stored: Stored) -> list[str]:
    """A partition that has the values of a producer in another order than it sent them (nonmonotonic send)."""
    found = []
    for partition, log in stored.items():
        last: dict[int, int] = {}
        for offset, value in log.items():
            if value.number < last.get(value.producer, -1):
                found.append(f"disorder: partition {partition}, offset {offset}: {value} after {last[value.producer]}")
            last[value.producer] = value.number
    return found


# -- what consumers read


def inconsistent_reads(history: History, stored: Stored) -> list[str]:
    """A message that a consumer read, but that is not stored: it was above the high watermark, or was lost."""
    return [
        f"inconsistent read: {found} is at {message}, which {assignment.member} read"
        for assignment in history.assignments
        for message in assignment.messages
        if (found := stored[message.partition].get(message.offset)) != message.value
    ]


def unseen(history: History, stored: Stored) -> list[str]:
    """A stored message that no member of the group has read."""
    read = {(message.partition, message.offset) for each in history.assignments for message in each.messages}
    return [
        f"unseen: partition {partition}, offsets {_ranges(missing)} of {_end(log)}"
        for partition, log in stored.items()
        if (missing := [offset for offset in log if (partition, offset) not in read])
    ]


def nonmonotonic_polls(history: History, stored: Stored) -> list[str]:
    """A member that skips messages or goes back while a partition is assigned to it."""
    offsets = {partition: list(log) for partition, log in stored.items()}
    found = []
    for assignment in history.assignments:
        for earlier, later in itertools.pairwise(assignment.messages):
            if later.offset <= earlier.offset:
                found.append(f"nonmonotonic poll: {assignment.member} read {later} after {earlier}")
                continue
            known = offsets[assignment.partition]
            following = bisect_right(known, earlier.offset)
            if following < len(known) and known[following] < later.offset:
                found.append(f"poll skip: {assignment.member} read {later} after {earlier}")
    return found


def rewound_assignments(history: History) -> list[str]:
    """A member that begins before an offset that was committed when the partition was assigned to it."""
    found = []
    for assignment in history.assignments:
        earlier = [each for each in history.commits if each.partition == assignment.partition]
        committed = max((each.offset for each in earlier if each.at < assignment.at), default=0)
        first = assignment.messages[0] if assignment.messages else None
        if first is not None and first.offset < committed and (first.partition, first.offset) not in history.given_up:
            found.append(f"rewound: {assignment.member} began at {first}, but {committed} was committed")
    return found


# -- transactions


def torn_transactions(history: History, visible: Stored) -> list[str]:
    """A transaction of which a read_committed consumer sees what it must not, or not all that it must.

    `visible` is the topic as such a consumer reads it. A transaction of unknown outcome is visible as a whole or not
    at all.
    """
    places = {(partition, value) for partition, log in visible.items() for value in log.values()}
    found = []
    for transaction in history.transactions:
        seen = [each for each in transaction.values if each in places]
        if transaction.outcome in (Outcome.ABORTED, Outcome.OPEN) and seen:
            found.append(
                f"aborted read (G1a): {_some(seen)} of {transaction.name}, which is {transaction.outcome.value}"
            )
        elif transaction.outcome is Outcome.COMMITTED and len(seen) < len(transaction.values):
            missing = [each for each in transaction.values if each not in places]
            found.append(f"lost write: {_some(missing)} of {transaction.name}, which was committed")
        elif transaction.outcome is Outcome.UNKNOWN and 0 < len(seen) < len(transaction.values):
            count = len(transaction.values)
            found.append(f"torn transaction: {_some(seen)}; {len(seen)} of the {count} values of {transaction.name}")
    return found


def precommitted_reads(history: History) -> list[str]:
    """A value that a read_committed consumer read before its producer asked to commit it."""
    asked_at = {value: each.commit_asked_at for each in history.transactions for _, value in each.values}
    return [
        f"precommitted read: {assignment.member} read {message} before it was committed"
        for assignment in history.assignments
        if assignment.read_committed
        for message, at in zip(assignment.messages, assignment.times, strict=True)
        if message.value in asked_at and not 0 < asked_at[message.value] < at
    ]


def copied_once(sources: Iterable[Value], copies: Stored) -> list[str]:
    """Values that consume-transform-produce has copied twice, or not at all."""
    places: defaultdict[Value, list[tuple[int, int]]] = defaultdict(list)
    for partition, log in copies.items():
        for offset, value in log.items():
            places[value].append((partition, offset))
    wanted = set(sources)
    return [
        *(f"copied twice: {value} is at {at}" for value, at in places.items() if len(at) > 1),
        *(f"never copied: {value}" for value in sorted(wanted - places.keys())),
        *(f"copied from nowhere: {value}" for value in sorted(places.keys() - wanted)),
    ]


# -- what brokers answered


def decreasing(
    what: str, answers: Iterable[Answer], ends: Mapping[int, int], late: Container[tuple[int, int]] = ()
) -> list[str]:
    """An offset that went back from one answer to the next, or is beyond the end of the partition.

    `late` are partitions and offsets that somebody may have set again: requests that arrived late.
    """
    found = []
    highest: dict[int, int] = {}
    for partition, offset, _ in answers:
        before = highest.get(partition, -1)
        if offset < before and (partition, offset) not in late:
            found.append(f"{what} of partition {partition} went back from {before} to {offset}")
        highest[partition] = max(before, offset)
    for partition, offset in highest.items():
        if offset > ends[partition]:
            found.append(f"{what} of partition {partition} was {offset}, but it ends at {ends[partition]}")
    return found


def wrong_metadata(answers: Iterable[Answer]) -> list[str]:
    """A committed offset that has lost its metadata, or has that of another one."""
    return [
        f"metadata: the committed offset {offset} of partition {partition} has {metadata!r}"
        for partition, offset, metadata in answers
        if metadata is not None and metadata != metadata_of(offset)
    ]


# -- what replicas have


Batches = Mapping[int, bytes]
"""The batches of a replica by base offset."""


def differing_replicas(name: str, replicas: Mapping[int, Batches], high_watermark: int) -> list[str]:
    """Replicas that are not byte-identical below the high watermark, from the highest start of a log on."""
    start = max((min(log, default=0) for log in replicas.values()), default=0)
    compared = {
        node: {offset: batch for offset, batch in log.items() if start <= offset < high_watermark}
        for node, log in replicas.items()
    }
    (first, expected), *others = compared.items()
    found = []
    for node, log in others:
        offsets = sorted(each for each in log.keys() | expected.keys() if log.get(each) != expected.get(each))
        if offsets:
            found.append(f"{name}: replicas {first} and {node} differ at {len(offsets)} batches: {offsets[:10]}")
    return found


def holes(name: str, ends: Mapping[int, int]) -> list[str]:
    """Offsets that are missing between the batches of a log, given their end offsets by base offset."""
    ordered = sorted(ends.items())
    return [
        f"hole: {name} has nothing from {end} to {base - 1}"
        for (_, end), (base, _) in itertools.pairwise(ordered)
        if base > end
    ]


def wrong_entries(name: str, entries: Iterable[tuple[int, int]], batches: Mapping[int, int]) -> list[str]:
    """Entries of an offset index, as (offset, position), where no such batch is. `batches` has the positions."""
    return [
        f"index: {name} has offset {offset} at position {position}, but it is at {batches.get(offset)}"
        for offset, position in entries
        if batches.get(offset) != position
    ]


def _some(values: Sequence[tuple[int, Value]]) -> str:
    """Return the first values as `partition: producer/number`."""
    shown = [f"{partition}: {value.producer}/{value.number}" for partition, value in values[:SHOWN]]
    more = len(values) - len(shown)
    return "; ".join(shown) + (f" and {more} more" if more else "")


def _end(log: Log) -> int:
    return max(log, default=-1) + 1


def _ranges(offsets: Sequence[int]) -> str:
    """Return sorted offsets as "1-3, 7"."""
    groups = itertools.groupby(enumerate(offsets), lambda pair: pair[1] - pair[0])
    runs = [[offset for _, offset in group] for _, group in groups]
    return ", ".join(str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs)
