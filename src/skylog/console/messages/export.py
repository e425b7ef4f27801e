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
from skylog.message_document import as_object
from skylog.model import TopicPartition
from skylog.printable import json_text

FORMATS: Final = {"json": "application/x-ndjson", "csv": "text/csv; charset=utf-8"}
DEFAULT_LIMIT: Final = 100_000
MAX_LIMIT: Final = 10_000_000
PIECE_BYTES: Final = 256 * 1024
SETTINGS: Final[dict[str, Any]] = {
    "fetch.message.max.bytes": 256 * 1024,
    "queued.max.messages.kbytes": 1024,
    "fetch.wait.max.ms": 50,
}
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
_FORMULA: Final = re.compile(r"[=+\-@\t\r\n]")
_NUMBER: Final = re.compile(r"-?\d+(\.\d+)?", re.ASCII)


def export(
    connection: Connection,
    ranges: Mapping[TopicPartition, OffsetRange],
    test: Test | None,
    limit: int,
    file_format: str,
) -> Iterator[bytes]:
    """The file in pieces; empty ones are moments in which nothing was found."""
    write = _csv_line_of if file_format == "csv" else _json_line
    yield _csv_line({column: column for column in COLUMNS}).encode() if file_format == "csv" else b""
    left = limit
    for key, offsets in ranges.items():
        if left <= 0 or not len(offsets):
            continue
        reader = PartitionReader(connection, {key: offsets.start_offset}, settings=SETTINGS)
        try:
            for messages in reader.read_to_end({key: offsets}):
                wanted = list(islice(filter(test, messages) if test else messages, left))
                yield from _in_pieces(wanted, write)
                left -= len(wanted)
                if left <= 0:
                    break
        finally:
            reader.close()


def json_lines(messages: list[Message]) -> Iterator[bytes]:
    """The lines of some messages in pieces; an empty one where there are no messages."""
    return _in_pieces(messages, _json_line)


def _in_pieces(messages: list[Message], write: Callable[[Message], str]) -> Iterator[bytes]:
    piece = bytearray()
    for message in messages:
        piece += write(message).encode(errors="backslashreplace")
        if len(piece) >= PIECE_BYTES:
            yield bytes(piece)
            piece.clear()
    yield bytes(piece)


def _json_line(message: Message) -> str:
    return f"{json_text(as_object(message))}\n"


def _csv_line_of(message: Message) -> str:
    return _csv_line(_flat(as_object(message)))


def _flat(document: dict[str, Any]) -> dict[str, Any]:
    value = document["value"]
    headers = document["headers"]
    return document | {
        "value": value if isinstance(value, str | None) else json_text(value),
        "headers": json_text(headers) if headers else None,
    }


def _csv_line(cells: Mapping[str, Any]) -> str:
    out = io.StringIO()
    csv.writer(out, quoting=csv.QUOTE_ALL).writerow([harmless(cells.get(column)) for column in COLUMNS])
    return out.getvalue()


def harmless(cell: Any) -> Any:
    """A spreadsheet takes a cell for a formula by its first character, which is hidden behind an apostrophe.

    Some skip blank characters before it; and where a `;` parts cells, only quotes keep a cell whole.
    """
    if isinstance(cell, str) and _FORMULA.match(cell) and not _NUMBER.fullmatch(cell):
        return f"'{cell}"
    return cell
