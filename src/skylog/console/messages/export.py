"""Messages as a file: lines of JSON as `skylog tail --json` prints them, or CSV for a spreadsheet.

One partition after the other, each in its order, in pieces that are handed on as they are filled.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from typing import Any, Final

from skylog.client import Connection, Message, OffsetRange, PartitionReader
from skylog.console.messages.match import Test
from skylog.console.messages.search import SETTINGS
from skylog.message_document import as_object
from skylog.model import TopicPartition
from skylog.printable import json_text

FORMATS: Final = {"json": "application/x-ndjson", "csv": "text/csv; charset=utf-8"}
DEFAULT_LIMIT: Final = 100_000
MAX_LIMIT: Final = 10_000_000
COLUMNS: Final = (
    "topic",
    "partition",
    "offset",
    "timestamp",
    "key",
    "key_encoding",
    "value",
    "value_encoding",
    "headers",
)
_FORMULA: Final = re.compile(r"[=+\-@\t\r]")
_NUMBER: Final = re.compile(r"-?\d+(\.\d+)?", re.ASCII)


def export(
    connection: Connection,
    ranges: Mapping[TopicPartition, OffsetRange],
    test: Test | None,
    limit: int,
    file_format: str,
) -> Iterator[bytes]:
    """The file in pieces; empty ones are moments in which nothing was found."""
    write: Callable[[list[Message]], str] = _csv_lines if file_format == "csv" else json_lines
    yield _csv_line({column: column for column in COLUMNS}).encode() if file_format == "csv" else b""
    left = limit
    for key, offsets in ranges.items():
        if left <= 0 or not len(offsets):
            continue
        reader = PartitionReader(connection, {key: offsets.start_offset}, settings=SETTINGS)
        try:
            for messages in reader.read_to_end({key: offsets}):
                wanted = list(islice(filter(test, messages) if test else messages, left))
                yield write(wanted).encode(errors="backslashreplace")
                left -= len(wanted)
                if left <= 0:
                    break
        finally:
            reader.close()


def json_lines(messages: list[Message]) -> str:
    return "".join(f"{json_text(as_object(message))}\n" for message in messages)


def _csv_lines(messages: list[Message]) -> str:
    return "".join(_csv_line(_flat(as_object(message))) for message in messages)


def _flat(document: dict[str, Any]) -> dict[str, Any]:
    value = document["value"]
    headers = document["headers"]
    return document | {
        "value": value if isinstance(value, str | None) else json_text(value),
        "headers": json_text(headers) if headers else None,
    }


def _csv_line(cells: Mapping[str, Any]) -> str:
    out = io.StringIO()
    csv.writer(out).writerow([harmless(cells.get(column)) for column in COLUMNS])
    return out.getvalue()


def harmless(cell: Any) -> Any:
    """A spreadsheet takes a cell for a formula by its first character, which is hidden behind an apostrophe."""
    if isinstance(cell, str) and _FORMULA.match(cell) and not _NUMBER.fullmatch(cell):
        return f"'{cell}"
    return cell
