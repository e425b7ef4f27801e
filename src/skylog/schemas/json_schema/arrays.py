"""Arrays: one schema for all items, or one for each of the first items and one for the rest."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from skylog.schemas.json_schema.combinations import Compare
from skylog.schemas.json_schema.content import Model, below, model, model_differences
from skylog.schemas.json_schema.nodes import Node
from skylog.schemas.json_schema.shapes import EMPTY, FALSE, Found, Shape, shape_of


def array_differences(original: Shape, update: Shape, compare: Compare) -> Iterator[Found]:
    yield from _all_items(original, update, compare)
    yield from _first_items(original, update, compare)
    rest_before, rest_after = _rest(original), _rest(update)
    yield from model_differences(rest_before, rest_after, "additionalItems", "ADDITIONAL_ITEMS", compare)
    word = "unevaluatedItems"
    yield from model_differences(model(original, word), model(update, word), word, "UNEVALUATED_ITEMS", compare)
    if update.get("uniqueItems") is True and original.get("uniqueItems") is not True:
        yield "UNIQUE_ITEMS_ADDED", ("uniqueItems",)


def _listed(shape: Shape) -> Sequence[Node]:
    """The schemas of the first items."""
    word = "prefixItems" if shape.node.draft >= 2020 else "items"
    items = shape.get(word)
    return [shape.child(item) for item in items] if isinstance(items, list) else []


def _each(shape: Shape) -> Node | None:
    """The schema of all items."""
    items = shape.get("items")
    return shape.child(items) if isinstance(items, dict | bool) and not _listed(shape) else None


def _rest(shape: Shape) -> Model:
    """What is accepted after the first items."""
    if not _listed(shape):
        return True
    return model(shape, "items" if shape.node.draft >= 2020 else "additionalItems")


def _beyond(shape: Shape) -> Model:
    rest = _rest(shape)
    return model(shape, "unevaluatedItems") if rest is True else rest


def _all_items(original: Shape, update: Shape, compare: Compare) -> Iterator[Found]:
    before, after = _each(original), _each(update)
    if after is None:
        return
    if before is None:
        yield "SCHEMA_ADDED", ("items",)
    else:
        yield from below(("items",), compare(before, after))


def _first_items(original: Shape, update: Shape, compare: Compare) -> Iterator[Found]:
    before, after = _listed(original), _listed(update)
    for index in range(max(len(before), len(after))):
        if index >= len(after):
            found = list(_removed(before[index], _beyond(update), compare))
        elif index >= len(before):
            found = list(_added(after[index], _beyond(original), compare))
        else:
            found = compare(before[index], after[index])
        yield from below(("items", str(index)), found)


def _removed(item: Node, beyond: Model, compare: Compare) -> Iterator[Found]:
    if isinstance(beyond, Node):
        found = compare(item, beyond)
        yield from found
        if found:
            yield "ITEM_REMOVED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL", ()
    elif not beyond and shape_of(item).kind != FALSE:
        yield "ITEM_REMOVED_FROM_CLOSED_CONTENT_MODEL", ()


def _added(item: Node, beyond: Model, compare: Compare) -> Iterator[Found]:
    if isinstance(beyond, Node):
        found = compare(beyond, item)
        yield from found
        if found:
            yield "ITEM_ADDED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL", ()
    elif beyond and shape_of(item).kind != EMPTY:
        yield "ITEM_ADDED_TO_OPEN_CONTENT_MODEL", ()
