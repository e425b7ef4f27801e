"""The registry's sentence for each incompatible difference of two JSON Schemas."""

from __future__ import annotations

from typing import Final

from skylog.schemas.difference import Difference

_NOT_PRESENT: Final = "The keyword at path '{path}' in the {reader} schema is not present in the {writer} schema"
_MORE: Final = "The value at path '{path}' in the {reader} schema is more than its value in the {writer} schema"
_LESS: Final = "The value at path '{path}' in the {reader} schema is less than its value in the {writer} schema"
_DIFFERENT: Final = "The value at path '{path}' is different between the {reader} and {writer} schema"
_FEWER: Final = (
    "An array or combined type at path '{path}' has fewer elements in the {reader} schema than the {writer} schema"
)
_MORE_ELEMENTS: Final = (
    "An array or combined type at path '{path}' has more elements in the {reader} schema than the {writer} schema"
)
_TYPE: Final = "A type at path '{path}' is different between the {reader} schema and the {writer} schema"
_ADDED_TO_OPEN: Final = (
    "The {reader} schema has an open content model and has a property or item at path '{path}' which is missing in "
    "the {writer} schema"
)
_REQUIRED_ADDED: Final = (
    "The {reader} schema has an unopen content model and has a required property at path '{path}' which is missing "
    "in the {writer} schema"
)
_REMOVED_FROM_CLOSED: Final = (
    "The {reader} has a closed content model and is missing a property or item present at path '{path}' in the "
    "{writer} schema"
)
_REMOVED_NOT_COVERED: Final = (
    "A property or item is missing in the {reader} schema but present at path '{path}' in the {writer} schema and is "
    "not covered by its partially open content model"
)
_ADDED_NOT_COVERED: Final = (
    "The {reader} schema has a property or item at path '{path}' which is missing in the {writer} schema and is not "
    "covered by its partially open content model"
)
_BY_ENDING: Final = {
    "_ADDED_TO_OPEN_CONTENT_MODEL": _ADDED_TO_OPEN,
    "_ADDED_TO_UNOPEN_CONTENT_MODEL": _REQUIRED_ADDED,
    "_REMOVED_FROM_CLOSED_CONTENT_MODEL": _REMOVED_FROM_CLOSED,
    "_REMOVED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL": _REMOVED_NOT_COVERED,
    "_ADDED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL": _ADDED_NOT_COVERED,
    "TYPE_CHANGED": _TYPE,
    "TYPE_NARROWED": _TYPE,
    "SUBSCHEMAS_CHANGED": _TYPE,
    "ENUM_ARRAY_CHANGED": _TYPE,
    "MULTIPLE_OF_EXPANDED": _MORE,
    "_ADDED": _NOT_PRESENT,
    "_REMOVED": _NOT_PRESENT,
    "_INCREASED": _MORE,
    "_DECREASED": _LESS,
    "_NARROWED": _FEWER,
    "_EXTENDED": _MORE_ELEMENTS,
    "_CHANGED": _DIFFERENT,
}
_EXACT: Final = {"SUM_TYPE_NARROWED": _FEWER}


def difference(kind: str, path: tuple[str, ...]) -> Difference:
    """The difference of this kind at this path."""
    where = "#/" + "/".join(path)
    sentence = _EXACT.get(kind) or next(text for ending, text in _BY_ENDING.items() if kind.endswith(ending))
    return Difference(kind, where, sentence.replace("{path}", where))
