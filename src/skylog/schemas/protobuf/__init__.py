"""Protobuf schemas, as .proto text or as a serialized descriptor: parsing, texts, compatibility."""

from skylog.schemas.protobuf.compatibility import protobuf_differences
from skylog.schemas.protobuf.schema import parse_protobuf, serialized

__all__ = ["parse_protobuf", "protobuf_differences", "serialized"]
