"""Makes a `Schema` of the text of an Avro schema."""

from __future__ import annotations

from collections.abc import Mapping

from skylog.schemas.avro.parser import Parser
from skylog.schemas.avro.texts import canonical_text, normalized_text
from skylog.schemas.avro.types import Record
from skylog.schemas.schema import Schema, SchemaType


def parse_avro(text: str, references: Mapping[str, str]) -> Schema:
    """Parse an Avro schema. The name of a reference is the full name of the type that it defines."""
    parser = Parser(references)
    referred = parser.parse_references()
    kind = parser.parse(text)
    return Schema(
        kind=SchemaType.AVRO,
        text=text,
        canonical=canonical_text(kind, referred),
        normalized=normalized_text(kind, referred),
        name=kind.name.full if isinstance(kind, Record) else None,
        parsed=kind,
    )
