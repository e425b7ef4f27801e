"""JSON Schema, drafts 4, 6, 7, 2019-09 and 2020-12: parsing, texts, compatibility."""

from skylog.schemas.json_schema.compatibility import json_differences
from skylog.schemas.json_schema.schema import parse_json

__all__ = ["json_differences", "parse_json"]
