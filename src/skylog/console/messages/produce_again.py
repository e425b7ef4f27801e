"""Fills the form that produces a message with the content of a stored one."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any, Final

from skylog.console.messages.view import Row, stored_bytes

NOTHING: Final[Mapping[str, Any]] = {
    "key": "",
    "key_encoding": "text",
    "value": "",
    "value_encoding": "text",
    "headers": "",
    "partition": "",
    "tombstone": "",
}


def again(row: Row) -> dict[str, Any]:
    """Return the fields of the form. `left_out` is the number of headers that the form cannot hold.

    Bytes, and text with line breaks that a browser would change, are in base64. A truncated message has no form.
    """
    key, key_encoding = _field(row["key"], row.get("key_encoding"))
    value, value_encoding = _field(row["value"], row.get("value_encoding"))
    texts = [each for each in row["headers"] if isinstance(each["value"], str) and "encoding" not in each]
    lines = [f"{each['name']}={each['value']}" for each in texts]
    kept = [
        line for line in lines if line.count("\n") == 0 and line.strip() == line and "=" not in line.partition("=")[0]
    ]
    return {
        "key": key,
        "key_encoding": key_encoding,
        "value": value,
        "value_encoding": value_encoding,
        "headers": "\n".join(kept),
        "partition": row["partition"],
        "tombstone": "on" if row["value"] is None else "",
        "left_out": row["header_count"] - len(kept),
        "is_possible": not row["is_cut"],
    }


def _field(content: Any, encoding: str | None) -> tuple[str, str]:
    if content is None:
        return "", "text"
    data = stored_bytes(content, encoding)
    if encoding or b"\r" in data or data.startswith(b"\n"):
        return base64.b64encode(data).decode(), "base64"
    return data.decode(errors="surrogatepass"), "text"
