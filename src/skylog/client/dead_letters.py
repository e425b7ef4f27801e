"""Dead letters: messages that could not be handled, with the reason in their headers.

A dead letter has the key, value and headers of the original, and these headers in addition:

    skylog-error-type        the class of the exception: ValueError
    skylog-error-message     its text, truncated
    skylog-error-topic       where the original is stored
    skylog-error-partition
    skylog-error-offset
    skylog-error-timestamp   of the original, in milliseconds since 1970; missing if it had none
    skylog-error-group       the consumer group that could not handle it
    skylog-error-attempts    how often that was tried

Its own timestamp is the time when it was given up, so that retention counts from there.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from skylog.client.connection import shared_settings
from skylog.client.message import Headers, Message
from skylog.errors import SkylogError

PREFIX: Final = "skylog-error-"
MAX_TEXT: Final = 2000
# The original may have been larger than librdkafka's limit, or small only because it was compressed.
_SENDING: Final[Mapping[str, object]] = {"message.max.bytes": 1_000_000_000, "compression.type": "zstd"}


class DeadLetter(NamedTuple):
    """What to send to a dead-letter topic."""

    value: bytes | None
    key: bytes | None
    headers: list[tuple[str, str | bytes | None]]


class Original(NamedTuple):
    """The message that became a dead letter: where it was stored, its timestamp and headers."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    headers: Headers


def dead_letter(message: Message[object], error: Exception, group: str, attempts: int) -> DeadLetter:
    """Return the dead letter of a message that failed with `error`. Replaces the headers of an earlier failure."""
    reasons: list[tuple[str, str | bytes | None]] = [
        ("type", type(error).__name__),
        ("message", error_text(error)),
        ("topic", message.topic),
        ("partition", str(message.partition)),
        ("offset", str(message.offset)),
        ("group", group),
        ("attempts", str(attempts)),
    ]
    if message.timestamp_ms >= 0:
        reasons.append(("timestamp", str(message.timestamp_ms)))
    headers: list[tuple[str, str | bytes | None]] = list(_own(message.headers))
    headers += [(PREFIX + name, value) for name, value in reasons]
    return DeadLetter(message.raw.value(), message.key, headers)


def producer_settings(config: Mapping[str, object] | None) -> dict[str, object]:
    """Return the settings of a producer of dead letters, beside a consumer with `config`."""
    return {**_SENDING, **shared_settings(config)}


def error_text(error: Exception) -> str:
    """Return the text of an exception of the application, truncated. Any exception has one, and UTF-8 can encode it."""
    try:
        text = str(error)
    except Exception as failure:  # a handler's exception may be of any class
        text = f"its text cannot be shown ({type(failure).__name__})"
    return text[:MAX_TEXT].encode("utf-8", "backslashreplace").decode()


def original_of(letter: Message[object]) -> Original:
    """Return what a dead letter says of its original. Raises SkylogError for any other message."""
    found = {name.removeprefix(PREFIX): value for name, value in letter.headers if name.startswith(PREFIX)}
    try:
        topic, partition, offset = (found[name] or b"" for name in ("topic", "partition", "offset"))
        timestamp = found.get("timestamp") or b"-1"
        return Original(topic.decode(), int(partition), int(offset), int(timestamp), _own(letter.headers))
    except (KeyError, ValueError) as error:
        raise SkylogError(
            f"{letter.topic_partition} at offset {letter.offset} is no dead letter: it does not name the topic, "
            f"partition and offset of its original in headers {PREFIX}…; replay it with --into"
        ) from error


def _own(headers: Headers) -> Headers:
    return tuple(each for each in headers if not each[0].startswith(PREFIX))
