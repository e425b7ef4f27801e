"""Resets the offsets of a group: parses a request, plans it for a preview, and performs exactly the previewed moves."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from skylog.client import OffsetMove, ResetPlan, ResetTo
from skylog.console.cluster.client_pool import Clients
from skylog.console.server.fields import FieldError, Fields
from skylog.errors import SkylogError
from skylog.model import TopicPartition

OWN_TARGET: Final = "target:"
_NOTHING: Final = "-"
_MAX: Final = (1 << 63) - 1
_OFFSET: Final = re.compile(r"[0-9]{1,18}")
_SHIFT: Final = re.compile(r"[+-][0-9]{1,18}")


class ResetTarget(NamedTuple):
    """`value` is an offset, a time in milliseconds or a number of messages, depending on `to`."""

    to: ResetTo
    value: int = 0


@dataclass(frozen=True)
class ResetRequest:
    """One target for the partitions in `topics`, and separate targets for the partitions in `own`.

    A topic with None instead of partitions means all its partitions. If `topics` is None, `target` applies to
    everything that the group reads.
    """

    target: ResetTarget | None
    topics: Mapping[str, list[int] | None] | None
    own: Mapping[TopicPartition, ResetTarget]

    @classmethod
    def parse(cls, fields: Fields) -> ResetRequest:
        """Parse `to` and `value`, `topic` or `partition` (both repeatable), and `target:TOPIC:PARTITION`."""
        own = {
            _partition(name): _own_target(name, text) for name, text in fields.with_prefix(OWN_TARGET).items() if text
        }
        topics: dict[str, list[int] | None] | None = None
        is_everywhere = fields.text("where", "") == "all"
        if fields.has("partition"):
            topics = _by_topic(map(_partition, fields.all("partition")))
        elif fields.has("topic"):
            topics = dict.fromkeys(fields.all("topic"))
        elif own and not is_everywhere:
            topics = {}
        elif fields.has("where") and not is_everywhere:
            raise FieldError("choose at least one partition, or set a separate target for one")
        target = None if topics == {} else _target(fields)
        return cls(target, topics, own)


def plan(clients: Clients, group: str, request: ResetRequest) -> ResetPlan:
    """Plan a reset without changing anything. Raises SkylogError for unknown partitions and groups."""
    # Targets differ by partition, so only the group, its commits and the log's offsets are used from these plans.
    found: dict[TopicPartition, OffsetMove] = {}
    if request.topics != {}:
        whole = clients.groups.plan_reset(group, ResetTo.LATEST, 0, request.topics)
        found = {move.partition: move for move in whole.moves}
    others = _by_topic(request.own.keys() - found.keys())
    if others or request.topics == {}:
        whole = clients.groups.plan_reset(group, ResetTo.LATEST, 0, others)
        found |= {move.partition: move for move in whole.moves}
    targets = {key: request.own.get(key) or request.target for key in found}
    times = _offsets_at(clients, targets, found)
    moves = []
    for key, move in sorted(found.items()):
        target = targets[key]
        assert target is not None
        moves.append(OffsetMove(key, move.from_offset, _wanted(group, move, target, times), move.offsets))
    return ResetPlan(whole.group, tuple(moves))


def _offsets_at(
    clients: Clients, targets: Mapping[TopicPartition, ResetTarget | None], found: Mapping[TopicPartition, OffsetMove]
) -> dict[TopicPartition, int]:
    """Return the first offset at or after the time, for partitions whose target is a time."""
    by_time: dict[int, list[TopicPartition]] = {}
    for key, target in targets.items():
        if target is not None and target.to is ResetTo.TIME:
            by_time.setdefault(target.value, []).append(key)
    offsets: dict[TopicPartition, int] = {}
    for time_ms, keys in by_time.items():
        for key, offset in clients.admin.offsets_at(keys, time_ms).items():
            offsets[key] = found[key].offsets.end_offset if offset is None else offset
    return offsets


def _wanted(group: str, move: OffsetMove, target: ResetTarget, times: Mapping[TopicPartition, int]) -> int:
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
                    f"group '{group}' has committed nothing in {move.partition}, so its offset cannot be shifted; "
                    "choose another target"
                )
            return move.from_offset + target.value


# -- a move as a form field, so that a reset performs the previewed moves


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
    """Return the plan with the previewed moves, from `move` fields: TOPIC:PARTITION:TO, optionally with `:FROM`.

    FROM must still be the committed offset (`-` if there is none).
    """
    requested = dict(_parse_move(text) for text in texts)
    if len(requested) != len(texts):
        raise FieldError("a partition is moved twice")
    if not requested:
        raise FieldError("there is nothing to move: 'move' is missing")
    now = clients.groups.plan_reset(group, ResetTo.LATEST, 0, _by_topic(requested))
    moves = []
    for each in now.moves:
        to_offset, shown_from = requested[each.partition]
        committed = _NOTHING if each.from_offset is None else str(each.from_offset)
        if shown_from not in (None, committed):
            raise SkylogError(f"group '{group}' has moved in {each.partition} since the preview; get a new preview")
        move = OffsetMove(each.partition, each.from_offset, to_offset, each.offsets)
        if move.is_clamped:
            limits = f"from {each.offsets.start_offset} up to {each.offsets.end_offset}"
            raise SkylogError(f"{each.partition} has the offsets {limits} now, not {to_offset}; get a new preview")
        moves.append(move)
    return ResetPlan(now.group, tuple(moves))


def _parse_move(text: str) -> tuple[TopicPartition, tuple[int, str | None]]:
    parts = text.split(":")
    if len(parts) not in (3, 4) or not _OFFSET.fullmatch(parts[2]):
        raise FieldError(f"'move' must be TOPIC:PARTITION:OFFSET, not '{text}'")
    return _partition(":".join(parts[:2])), (int(parts[2]), parts[3] if len(parts) == 4 else None)


# -- parsing fields


def _target(fields: Fields) -> ResetTarget:
    to = ResetTo(fields.choice("to", [each.value for each in ResetTo]))
    match to:
        case ResetTo.OFFSET:
            return ResetTarget(to, fields.integer("value", low=0, high=_MAX))
        case ResetTo.SHIFT:
            return ResetTarget(to, fields.integer("value", low=-_MAX, high=_MAX))
        case ResetTo.TIME:
            return ResetTarget(to, min(fields.time_ms("value"), _MAX))
    return ResetTarget(to)


def _own_target(name: str, text: str) -> ResetTarget:
    """Parse `earliest`, `latest`, an offset, a signed number of messages, or a time."""
    text = text.strip()
    if text in (ResetTo.EARLIEST.value, ResetTo.LATEST.value):
        return ResetTarget(ResetTo(text))
    if _OFFSET.fullmatch(text):
        return ResetTarget(ResetTo.OFFSET, int(text))
    if _SHIFT.fullmatch(text):
        return ResetTarget(ResetTo.SHIFT, int(text))
    try:
        return ResetTarget(ResetTo.TIME, Fields([("time", text)]).time_ms("time"))
    except FieldError:
        expected = "earliest, latest, an offset, +10 or -10, or a time such as 2026-05-01T12:00 or -1h"
        raise FieldError(f"the target of {name} must be {expected}, not '{text}'") from None


def _partition(text: str) -> TopicPartition:
    topic, _, number = text.rpartition(":")
    if not topic or not (number.isascii() and number.isdecimal() and len(number) < 7):
        raise FieldError(f"a partition must be TOPIC:NUMBER, not '{text}'")
    return TopicPartition(topic, int(number))


def _by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int] | None]:
    topics: dict[str, list[int]] = {}
    for key in partitions:
        topics.setdefault(key.topic, []).append(key.partition)
    return {**topics}
