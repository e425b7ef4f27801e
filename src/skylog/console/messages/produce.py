"""Produces one message from the fields of a form."""

from __future__ import annotations

import base64
import binascii
from dataclasses import dataclass
from typing import Final

from skylog.client import Connection, Position, Producer
from skylog.console.server.fields import FieldError, Fields
from skylog.errors import SkylogError

TIMEOUT_S: Final = 8
_MAX_BYTES: Final = 8 * 1024 * 1024  # the broker's own limit may be lower


@dataclass(frozen=True, slots=True)
class NewMessage:
    """A message to produce. A value of None is a tombstone."""

    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes]]
    partition: int | None


def parse_message(fields: Fields, *, is_form: bool) -> NewMessage:
    """Parse the fields of `POST …/messages`. `headers` has lines NAME=VALUE. Encodings are `text` or `base64`."""
    is_tombstone = fields.has("tombstone")
    if is_tombstone and fields.has("value"):
        raise FieldError("a tombstone has no value: leave the value empty, or clear 'tombstone'")
    value = _content(fields, "value", is_form)
    return NewMessage(
        _content(fields, "key", is_form) if fields.has("key") else None,
        None if is_tombstone else value,
        [_header(line) for text in fields.all("headers") for line in text.splitlines() if line.strip()],
        fields.optional_integer("partition", low=0),
    )


def send(connection: Connection, topic: str, message: NewMessage) -> Position:
    """Produce the message and return its position. Raises SkylogError if it is not stored in time."""
    settings = {"message.timeout.ms": TIMEOUT_S * 1000, "linger.ms": 0, "message.max.bytes": _MAX_BYTES}
    headers: list[tuple[str, str | bytes | None]] = [(name, value) for name, value in message.headers]
    with Producer(connection.bootstrap, config=settings) as producer:
        delivery = producer.send(topic, message.value, message.key, partition=message.partition, headers=headers)
        try:
            return delivery.result(TIMEOUT_S + 2)
        except TimeoutError as error:
            raise SkylogError(f"the message to '{topic}' was not acknowledged within {TIMEOUT_S + 2} s") from error


def _content(fields: Fields, name: str, is_form: bool) -> bytes:
    text = fields.text(name, "")
    encoding = fields.choice(f"{name}_encoding", ("text", "base64"), "text")
    if encoding == "base64":
        try:
            return base64.b64decode(text, validate=True)
        except (binascii.Error, ValueError) as error:
            raise FieldError(f"'{name}' is not base64: {error}") from error
    if is_form:
        text = text.replace("\r\n", "\n")  # the line breaks of forms
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise FieldError(f"'{name}' has half of a surrogate pair, which cannot be encoded") from error


def _header(line: str) -> tuple[str, bytes]:
    name, separator, value = line.partition("=")
    if not separator or not name.strip():
        raise FieldError(f"a header must be a line NAME=VALUE, not '{line}'")
    try:
        return name.strip(), value.encode()
    except UnicodeEncodeError as error:
        raise FieldError(f"header '{name}' has half of a surrogate pair, which cannot be encoded") from error
