"""Moving a group to other offsets: what is asked for, what that comes to, and doing just what was shown."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, NamedTuple

from skylog.client import OffsetMove, ResetPlan, ResetTo
from skylog.console.cluster import Clients
from skylog.console.fields import FieldError, Fields
from skylog.errors import SkylogError
from skylog.model import TopicPartition

OWN_TARGET: Final = "target:"
_NOTHING: Final = "-"
_MAX: Final = (1 << 63) - 1
_OFFSET: Final = re.compile(r"[0-9]{1,18}")
_SHIFT: Final = re.compile(r"[+-][0-9]{1,18}")


class Target(NamedTuple):
    """Where to: `value` is an offset, a time or by how many, as `to` has it."""

    to: ResetTo
    value: int = 0


@dataclass(frozen=True)
class Wish:
    """What somebody asks for: a target for some partitions of `topics`, or for all where there are None of them, or for
    all that the group reads where `topics` is None. Partitions with a target of their `own` go there instead."""

    target: Target | None
    topics: Mapping[str, list[int] | None] | None
    own: Mapping[TopicPartition, Target]

    @classmethod
    def read(cls, fields: Fields) -> Wish:
        """Of `to` and `value`; `topic` or `partition`, each maybe many times; and `target:TOPIC:PARTITION`."""
        own = {
            _partition(name): _own_target(name, text) for name, text in fields.with_prefix(OWN_TARGET).items() if text
        }
        topics: dict[str, list[int] | None] | None = None
        if fields.has("partition"):
            topics = _by_topic(map(_partition, fields.all("partition")))
        elif fields.has("topic"):
            topics = dict.fromkeys(fields.all("topic"))
        elif own:
            topics = {}
        elif fields.has("where"):
            raise FieldError("choose at least one partition, or give one a target of its own")
        target = None if topics == {} else _target(fields)
        return cls(target, topics, own)


def plan(clients: Clients, group: str, wish: Wish) -> ResetPlan:
    """What it comes to; changes nothing. Raises SkylogError for partitions and groups that are not there."""
    # Of a plan only the group, its commits and the logs' ends are taken here: targets differ by partition.
    found: dict[TopicPartition, OffsetMove] = {}
    if wish.topics != {}:
        whole = clients.groups.plan_reset(group, ResetTo.LATEST, 0, wish.topics)
        found = {move.partition: move for move in whole.moves}
    others = _by_topic(wish.own.keys() - found.keys())
    if others or wish.topics == {}:
        whole = clients.groups.plan_reset(group, ResetTo.LATEST, 0, others)
        found |= {move.partition: move for move in whole.moves}
    targets = {key: wish.own.get(key) or wish.target for key in found}
    times = _offsets_at(clients, targets, found)
    moves = []
    for key, move in sorted(found.items()):
        target = targets[key]
        assert target is not None
        moves.append(OffsetMove(key, move.from_offset, _wanted(group, move, target, times), move.offsets))
    return ResetPlan(whole.group, tuple(moves))


def _offsets_at(
    clients: Clients, targets: Mapping[TopicPartition, Target | None], found: Mapping[TopicPartition, OffsetMove]
) -> dict[TopicPartition, int]:
    """Where a time is asked for, the first offset at or after it."""
    by_time: dict[int, list[TopicPartition]] = {}
    for key, target in targets.items():
        if target is not None and target.to is ResetTo.TIME:
            by_time.setdefault(target.value, []).append(key)
    offsets: dict[TopicPartition, int] = {}
    for time_ms, keys in by_time.items():
        for key, offset in clients.admin.offsets_at(keys, time_ms).items():
            offsets[key] = found[key].offsets.end_offset if offset is None else offset
    return offsets


def _wanted(group: str, move: OffsetMove, target: Target, times: Mapping[TopicPartition, int]) -> int:
    match target.to:
        case ResetTo.EARLIEST:
            return move.offsets.start_offset
        case ResetTo.LATEST:
            return move.offsets.end_offset
        case ResetTo.OFFSET:
            return target.value
        case ResetTo.TIME:
            return times[move.partition]
        case ResetTo.SHIFT:
            if move.from_offset is None:
                raise SkylogError(
                    f"group '{group}' has committed nothing in {move.partition}, so it cannot be shifted there; "
                    "choose another target for it"
                )
            return move.from_offset + target.value


# -- a move as a field of a form, so that what is done is what was shown


def move_document(move: OffsetMove) -> dict[str, Any]:
    start_offset, end_offset = move.offsets.start_offset, move.offsets.end_offset
    before = None if move.from_offset is None else min(max(move.from_offset, start_offset), end_offset)
    shown_from = _NOTHING if move.from_offset is None else move.from_offset
    return {
        **move.partition._asdict(),
        "from_offset": move.from_offset,
        "to_offset": move.to_offset,
        "wanted_offset": move.wanted_offset,
        "clamped": move.is_clamped,
        "start_offset": start_offset,
        "end_offset": end_offset,
        "skipped": None if before is None else max(move.to_offset - before, 0),
        "repeated": None if before is None else max(before - move.to_offset, 0),
        "lag": end_offset - move.to_offset,
        "move": f"{move.partition.topic}:{move.partition.partition}:{move.to_offset}:{shown_from}",
    }


def confirmed(clients: Clients, group: str, texts: Sequence[str]) -> ResetPlan:
    """The moves that were shown, as they stand in `move` fields: TOPIC:PARTITION:TO, or with `:FROM`, which must still
    be what is committed (- for nothing)."""
    asked = dict(_parse_move(text) for text in texts)
    if len(asked) != len(texts):
        raise FieldError("a partition is moved twice")
    if not asked:
        raise FieldError("there is nothing to move: 'move' is missing")
    now = clients.groups.plan_reset(group, ResetTo.LATEST, 0, _by_topic(asked))
    moves = []
    for each in now.moves:
        to_offset, shown_from = asked[each.partition]
        committed = _NOTHING if each.from_offset is None else str(each.from_offset)
        if shown_from not in (None, committed):
            raise SkylogError(f"group '{group}' has moved in {each.partition} since the preview; look at a new one")
        move = OffsetMove(each.partition, each.from_offset, to_offset, each.offsets)
        if move.is_clamped:
            limits = f"from {each.offsets.start_offset} up to {each.offsets.end_offset}"
            raise SkylogError(f"{each.partition} has the offsets {limits} now, not {to_offset}; look at a new preview")
        moves.append(move)
    return ResetPlan(now.group, tuple(moves))


def _parse_move(text: str) -> tuple[TopicPartition, tuple[int, str | None]]:
    parts = text.split(":")
    if len(parts) not in (3, 4) or not _OFFSET.fullmatch(parts[2]):
        raise FieldError(f"'move' must be TOPIC:PARTITION:OFFSET, not '{text}'")
    return _partition(":".join(parts[:2])), (int(parts[2]), parts[3] if len(parts) == 4 else None)


# -- reading fields


def _target(fields: Fields) -> Target:
    to = ResetTo(fields.choice("to", [each.value for each in ResetTo]))
    match to:
        case ResetTo.OFFSET:
            return Target(to, fields.integer("value", low=0, high=_MAX))
        case ResetTo.SHIFT:
            return Target(to, fields.integer("value", low=-_MAX, high=_MAX))
        case ResetTo.TIME:
            return Target(to, min(fields.time_ms("value"), _MAX))
    return Target(to)


def _own_target(name: str, text: str) -> Target:
    """earliest, latest, an offset, by how many with a sign, or a time."""
    text = text.strip()
    if text in (ResetTo.EARLIEST.value, ResetTo.LATEST.value):
        return Target(ResetTo(text))
    if _OFFSET.fullmatch(text):
        return Target(ResetTo.OFFSET, int(text))
    if _SHIFT.fullmatch(text):
        return Target(ResetTo.SHIFT, int(text))
    try:
        datetime.fromisoformat(text)
    except ValueError:
        expected = "earliest, latest, an offset, +10 or -10, or a time such as 2026-05-01T12:00"
        raise FieldError(f"the target of {name} must be {expected}, not '{text}'") from None
    return Target(ResetTo.TIME, Fields([("time", text)]).time_ms("time"))


def _partition(text: str) -> TopicPartition:
    topic, _, number = text.rpartition(":")
    if not topic or not (number.isascii() and number.isdecimal() and len(number) < 7):
        raise FieldError(f"a partition must be given as TOPIC:NUMBER, not '{text}'")
    return TopicPartition(topic, int(number))


def _by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int] | None]:
    topics: dict[str, list[int]] = {}
    for key in partitions:
        topics.setdefault(key.topic, []).append(key.partition)
    return {**topics}
