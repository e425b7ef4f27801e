"""PostgreSQL's arrays as JSON arrays: {1,NULL,"a \\"b\\""}, {{1,2},{3,4}}, [0:1]={1,2}. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

Encode = Callable[[bytes], bytes]

ELEMENTS: Final = {
    199: 114,  # json
    1000: 16,  # boolean
    1001: 17,  # bytea
    1005: 21,  # smallint
    1007: 23,  # integer
    1009: 25,  # text
    1014: 1042,  # character
    1015: 1043,  # character varying
    1016: 20,  # bigint
    1021: 700,  # real
    1022: 701,  # double precision
    1028: 26,  # oid
    1115: 1114,  # timestamp
    1182: 1082,  # date
    1185: 1184,  # timestamptz
    1231: 1700,  # numeric
    2951: 2950,  # uuid
    3807: 3802,  # jsonb
}
"""The types of arrays, and of their elements."""

_TOKEN: Final = re.compile(rb'"((?:[^"\\]|\\.)*)"|([^{},"]+)|[{},]', re.DOTALL)
_ESCAPED: Final = re.compile(rb"\\(.)", re.DOTALL)
_JSON: Final = {b"{": b"[", b"}": b"]", b",": b","}


def array_encoder(element: Encode | None) -> Encode:
    """Return the function that turns an array to JSON. `element` does that for its elements; None: they are JSON."""

    def encode(value: bytes) -> bytes:
        start = value.index(b"=") + 1 if value.startswith(b"[") else 0  # the bounds, if they do not begin with 1
        parts = []
        for token in _TOKEN.finditer(value, start):
            quoted, bare = token.groups()
            if quoted is None and bare is None:
                parts.append(_JSON[token[0]])
            elif bare == b"NULL":
                parts.append(b"null")
            else:
                text = bare if quoted is None else _ESCAPED.sub(rb"\1", quoted)
                parts.append(text if element is None else element(text))
        return b"".join(parts)

    return encode
