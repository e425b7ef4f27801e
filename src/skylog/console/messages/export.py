"""Exports messages as JSON lines, in the format of `skylog tail --json`, or as CSV.

Partitions follow each other, each in its order. The file is produced in pieces.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from typing import Any, Final

from skylog.client import Connection, Message, OffsetRange, PartitionReader
from skylog.console.messages.query import Predicate
from skylog.message_document import as_json_line, as_object
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
    predicate: Predicate | None,
    limit: int,
    file_format: str,
) -> Iterator[bytes]:
    """Yield the file in pieces. A piece is empty if nothing was found meanwhile."""
    write = _csv_line_of if file_format == "csv" else _json_line
    yield _csv_line({column: column for column in COLUMNS}).encode() if file_format == "csv" else b""
    left = limit
    for key, offsets in ranges.items():
        if left <= 0 or not len(offsets):
            continue
        reader = PartitionReader(connection, {key: offsets.start_offset}, settings=SETTINGS)
        try:
            for messages in reader.read_to_end({key: offsets}):
                chosen = list(islice(filter(predicate, messages) if predicate else messages, left))
                yield from _in_pieces(chosen, write)
                left -= len(chosen)
                if left <= 0:
                    break
        finally:
            reader.close()


def json_lines(messages: list[Message]) -> Iterator[bytes]:
    """Yield the lines of some messages in pieces; one empty piece if there are no messages."""
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
    return f"{as_json_line(message)}\n"


def _csv_line_of(message: Message) -> str:
    document = as_object(message)
    value, headers = document["value"], document["headers"]
    cells = document | {
        "value": value if isinstance(value, str | None) else (message.value or b"").decode(),
        "headers": json_text(headers) if headers else None,
    }
    return _csv_line(cells)


def _csv_line(cells: Mapping[str, Any]) -> str:
    out = io.StringIO()
    # All cells are quoted: spreadsheets that separate cells by `;` would otherwise split them.
    csv.writer(out, quoting=csv.QUOTE_ALL).writerow([escape_formula(cells.get(column)) for column in COLUMNS])
    return out.getvalue()


def escape_formula(cell: Any) -> Any:
    """Put an apostrophe before a text that a spreadsheet would read as a formula because of its first character.

    Some spreadsheets skip whitespace before it, so a leading tab or line break counts too.
    """
    if isinstance(cell, str) and _FORMULA.match(cell) and not _NUMBER.fullmatch(cell):
        return f"'{cell}"
    return cell
