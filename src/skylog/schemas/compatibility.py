"""Whether data that was written with one schema can be read with another, by the rules of their format."""

from __future__ import annotations

from skylog.schemas.difference import Difference
from skylog.schemas.pairs import TooComplexError
from skylog.schemas.schema import Schema, SchemaType

DIFFERENT_TYPE = "Incompatible because of different schema type"


def differences(reader: Schema, writer: Schema) -> list[Difference]:
    """Why data of `writer` cannot be read with `reader`; empty if it can. Both are of one format."""
    match reader.kind:
        case SchemaType.AVRO:
            from skylog.schemas.avro import avro_differences

            return avro_differences(reader, writer)
        case SchemaType.JSON:
            from skylog.schemas.json_schema import json_differences

            return json_differences(reader, writer)
        case SchemaType.PROTOBUF:
            from skylog.schemas.protobuf import protobuf_differences

            return protobuf_differences(reader, writer)


def incompatibilities(
    reader: Schema, writer: Schema, *, reader_is: str = "reader", writer_is: str = "writer"
) -> list[str]:
    """Why data of `writer` cannot be read with `reader`, in the registry's words; empty if it can.

    The sentences name the two schemas as `reader_is` and `writer_is` say.
    """
    if reader.kind is not writer.kind:
        return [DIFFERENT_TYPE]
    try:
        return [difference.message(reader_is, writer_is) for difference in differences(reader, writer)]
    except RecursionError:
        return [f"The {reader_is} and the {writer_is} schema are nested too deeply to be compared"]
    except TooComplexError:
        return [
            f"The {reader_is} and the {writer_is} schema are too complex to be compared: split them into several, or "
            "set the compatibility level to NONE"
        ]
