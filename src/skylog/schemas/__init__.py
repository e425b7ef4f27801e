"""Schemas of messages: Avro, JSON Schema and Protobuf.

Parsing, texts to compare, and compatibility, as Confluent's Schema Registry defines them. This part is pure: schemas
that are referred to are handed in. The libraries of a format are imported when a schema of it is parsed, so importing
this package costs nothing.
"""

from skylog.schemas.parsing import parse
from skylog.schemas.schema import InvalidSchema, Reference, Schema, SchemaType

__all__ = ["InvalidSchema", "Reference", "Schema", "SchemaType", "parse"]
