"""The content model of an object or array: what it accepts beyond the properties or items that it lists.

It is open (accepts anything), closed (accepts nothing), or partially open (accepts what fits a schema).
"""

from __future__ import annotations

from collections.abc import Iterator

from skylog.schemas.json_schema.combinations import Compare
from skylog.schemas.json_schema.nodes import Node
from skylog.schemas.json_schema.shapes import EMPTY, FALSE, Found, Shape, shape_of

Model = bool | Node
"""True is open, False is closed."""


def model(shape: Shape, *words: str) -> Model:
    """The content model that the first of these keywords gives. Open without any of them."""
    for word in words:
        value = shape.get(word)
        if isinstance(value, dict | bool):
            node = shape.child(value)
            kind = shape_of(node).kind
            return kind == EMPTY if kind in (EMPTY, FALSE) else node
    return True


def model_differences(original: Model, update: Model, word: str, name: str, compare: Compare) -> Iterator[Found]:
    """What a new content model refuses. `name` begins the differences' names, `word` their path."""
    if update is True or original is False:
        return
    if update is False:
        yield f"{name}_REMOVED", (word,)
    elif original is True:
        yield f"{name}_NARROWED", (word,)
    else:
        yield from below((word,), compare(original, update))


def below(path: tuple[str, ...], found: list[Found]) -> Iterator[Found]:
    """Differences of a part, with the path of the part."""
    return ((kind, (*path, *inner)) for kind, inner in found)
