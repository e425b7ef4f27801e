"""Parses a schema of any format."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from skylog.errors import SkylogError
from skylog.schemas.schema import InvalidSchema, Schema, SchemaType

NO_REFERENCES: Mapping[str, str] = MappingProxyType({})


def parse(kind: SchemaType, text: str, references: Mapping[str, str] = NO_REFERENCES) -> Schema:
    """Parse the text of a schema. Raises InvalidSchema with the place and the reason.

    `references` has the text of every schema that this one needs, also indirectly, under the name that is used for it.
    A large schema takes long: call this in a thread if an event loop must not wait.
    """
    try:
        match kind:
            case SchemaType.AVRO:
                from skylog.schemas.avro import parse_avro

                return parse_avro(text, references)
            case SchemaType.JSON:
                from skylog.schemas.json_schema import parse_json

                return parse_json(text, references)
            case SchemaType.PROTOBUF:
                from skylog.schemas.protobuf import parse_protobuf

                return parse_protobuf(text, references)
    except ImportError as error:
        raise SkylogError(f"schemas of the format {kind} require pip install 'skylog[schemas]': {error}") from error
    except RecursionError:
        raise InvalidSchema("the schema is nested too deeply") from None
