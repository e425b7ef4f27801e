"""Avro schemas: parsing, texts, compatibility."""

from skylog.schemas.avro.compatibility import avro_differences
from skylog.schemas.avro.schema import parse_avro

__all__ = ["avro_differences", "parse_avro"]
