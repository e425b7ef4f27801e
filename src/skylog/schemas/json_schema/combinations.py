"""allOf, anyOf and oneOf."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from skylog.schemas.json_schema.nodes import Node
from skylog.schemas.json_schema.shapes import COMBINED, Found, Shape
from skylog.schemas.json_text import compact_json

Member = Node | Shape
Compare = Callable[[Member, Member], list[Found]]


def singled_out(original: Shape, update: Shape, compare: Compare) -> bool:
    """Whether only one of the schemas is combined, and one of its members is enough to fit the other."""
    if update.kind in COMBINED and original.kind not in COMBINED:
        members = update.members if update.kind != "allOf" or len(update.members) == 1 else ()
        return any(not compare(original, member) for member in members)
    if original.kind in COMBINED and update.kind not in COMBINED:
        members = original.members if original.kind == "allOf" or len(original.members) == 1 else ()
        return any(not compare(member, update) for member in members)
    return False


def combined_differences(original: Shape, update: Shape, compare: Compare) -> list[Found]:
    """Compare two combined schemas: every member must find another one that reads it."""
    if not _may_become(original, update):
        return [("COMBINED_TYPE_CHANGED", ())]
    before, after = _distinct(original.members), _distinct(update.members)
    found: list[Found] = []
    if update.kind == "allOf" and len(before) < len(after):
        found.append(("PRODUCT_TYPE_EXTENDED", ()))
    if update.kind != "allOf" and len(before) > len(after):
        found.append(("SUM_TYPE_NARROWED", ()))
    readable = [[index for index, member in enumerate(after) if not compare(other, member)] for other in before]
    if largest_matching(readable) < min(len(before), len(after)):
        found.append(("COMBINED_TYPE_SUBSCHEMAS_CHANGED", ()))
    return found


def _may_become(original: Shape, update: Shape) -> bool:
    match update.kind:
        case original.kind | "anyOf":
            return True
        case "oneOf":
            return len(original.members) == 1
        case _:
            return len(original.members) == len(update.members) == 1


def _distinct(members: Sequence[Member]) -> list[Member]:
    return list({_identity(member): member for member in members}.values())


def _identity(member: Member) -> tuple[str, ...]:
    if isinstance(member, Node):
        return (compact_json(member.raw, sort_keys=True),)
    return member.kind, member.word, str(member.is_integer), compact_json(member.node.raw, sort_keys=True)


def largest_matching(edges: Sequence[Sequence[int]]) -> int:
    """How many on the left can each have their own one on the right. `edges` has the right ones for each left one."""
    owners: dict[int, int] = {}

    def assign(left: int, tried: set[int]) -> bool:
        free = next((right for right in edges[left] if right not in owners), None)
        if free is not None:
            owners[free] = left
            return True
        for right in edges[left]:
            if right not in tried:
                tried.add(right)
                if assign(owners[right], tried):
                    owners[right] = left
                    return True
        return False

    return sum(assign(left, set()) for left in range(len(edges)))
