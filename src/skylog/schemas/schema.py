"""A parsed schema: its format, its texts and its name. Formats add what they have parsed (`parsed`)."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from skylog.errors import SkylogError


class SchemaType(StrEnum):
    """The formats, with the names of the registry's API."""

    AVRO = "AVRO"
    JSON = "JSON"
    PROTOBUF = "PROTOBUF"


class InvalidSchema(SkylogError):  # noqa: N818
    """The text is not a schema of its format. The message says where and why."""


@dataclass(frozen=True, slots=True, order=True)
class Reference:
    """A reference of a schema to another: the name it uses, and the version of the subject that has the other."""

    name: str
    subject: str
    version: int


@dataclass(frozen=True, slots=True)
class Schema:
    """A schema that was parsed. Made by `skylog.schemas.parse`."""

    kind: SchemaType
    text: str
    """As it was given."""
    canonical: str
    """Equal for schemas that differ only in white space and notation: the same schema, the same id."""
    normalized: str
    """The same, and also equal for schemas that differ only in the order of what has no order."""
    name: str | None
    """Full name of the record or of the first message. None if the schema has none."""
    parsed: object = field(repr=False, compare=False)
    """The format's own form, for its rules of compatibility."""
