"""The registry's sentence for each incompatible difference of two Protobuf schemas."""

from __future__ import annotations

from typing import Final

from skylog.schemas.difference import Difference

_SENTENCES: Final = {
    "PACKAGE_CHANGED": (
        "The package at '{path}' in the {reader} schema does not match the package in the {writer} schema"
    ),
    "MESSAGE_REMOVED": "The {reader} schema is missing a MESSAGE type at path '{path}' in the {writer} schema",
    "FIELD_KIND_CHANGED": (
        "The type of a field at path '{path}' in the {reader} schema does not match the {writer} schema"
    ),
    "FIELD_SCALAR_KIND_CHANGED": (
        "The kind of a SCALAR field at path '{path}' in the {reader} schema does not match its kind in the {writer} "
        "schema"
    ),
    "FIELD_NAMED_TYPE_CHANGED": (
        "The type of a MESSAGE field at path '{path}' in the {reader} schema does not match its type in the {writer} "
        "schema"
    ),
    "FIELD_NUMERIC_LABEL_CHANGED": (
        "The label for a NUMERIC field at path '{path}' in the {reader} schema does not match its label in the "
        "{writer} schema"
    ),
    "REQUIRED_FIELD_ADDED": (
        "A required field at path '{path}' in the {reader} schema is missing in the {writer} schema"
    ),
    "REQUIRED_FIELD_REMOVED": (
        "The {reader} schema is missing a required field at path '{path}' in the {writer} schema"
    ),
    "ONEOF_FIELD_REMOVED": "The {reader} schema is missing a oneof field at path '{path}' in the {writer} schema",
    "MULTIPLE_FIELDS_MOVED_TO_ONEOF": (
        "Multiple fields in the oneof at path '{path}' in the {reader} schema are outside a oneof in the {writer} "
        "schema"
    ),
    "FIELD_MOVED_TO_EXISTING_ONEOF": (
        "A field in the oneof at path '{path}' in the {reader} schema is outside an existing oneof in the {writer} "
        "schema"
    ),
}


def difference(kind: str, path: tuple[str, ...]) -> Difference:
    """The difference of this kind at this path."""
    where = "#/" + "/".join(path)
    return Difference(kind, where, _SENTENCES[kind].replace("{path}", where))
