"""The replication connection: START_REPLICATION over libpq, without blocking. Imports psycopg."""

from __future__ import annotations

import re
import select
import struct
from typing import Any, Final

import psycopg
from psycopg import pq
from psycopg.conninfo import make_conninfo

from skylog.capture.pgoutput import format_lsn
from skylog.capture.table import CaptureError
from skylog.errors import SkylogError

WAL: Final = 119  # w: a message of the plugin follows
KEEPALIVE: Final = 107  # k
HEADER: Final = 25  # bytes before the message of the plugin

_QUOTED: Final = re.compile('".*"', re.DOTALL)
_UNDEFINED_OBJECT: Final = b"42704"
_WAL: Final = struct.Struct(">xQQq")
_KEEPALIVE: Final = struct.Struct(">xQqB")
_STATUS: Final = struct.Struct(">cQQQqB")
_SETTINGS: Final = (
    "-c datestyle=ISO -c timezone=UTC -c intervalstyle=iso_8601 -c extra_float_digits=1 -c bytea_output=hex "
    "-c client_encoding=UTF8 -c row_security=off -c statement_timeout=0 -c lock_timeout=0"
)
"""Rows are text: these settings make it the same for every database and user.

With `row_security` off, a policy that hides rows from the user is an error, and does not leave rows out of a snapshot.
"""


def conninfo(url: str, **options: Any) -> str:
    """Return how to connect, with the settings that make text the same everywhere. Raises CaptureError."""
    try:
        given = psycopg.conninfo.conninfo_to_dict(url)
        settings = " ".join(part for part in (str(given.get("options") or ""), _SETTINGS) if part)
        defaults = {"connect_timeout": "10", "application_name": "skylog capture", **given}
        return make_conninfo(**{**defaults, "options": settings, **options})
    except psycopg.Error as error:
        reason = " ".join(_QUOTED.sub('"…"', str(error)).split())  # what is quoted may be a password
        raise CaptureError(f"not the address of a database: {reason}; expected postgresql://user@host/name") from None


class PublicationDroppedError(SkylogError):
    """There was no publication when a change was made.

    PostgreSQL looks for it at the time of the change, so it also refuses the stream if the publication exists again.
    """

    def __init__(self, text: str) -> None:
        super().__init__(f"the publication was dropped ({text}): all tables are read anew")


class ReplicationStream:
    """A stream of copy messages. Raises psycopg.Error, or PublicationDroppedError, if it ends."""

    def __init__(self, url: str, slot: str, publication: str, lsn: int) -> None:
        self._connection = pq.PGconn.connect(conninfo(url, replication="database").encode())
        if self._connection.status != pq.ConnStatus.OK:
            raise psycopg.OperationalError(_text(self._connection.error_message))
        self._connection.nonblocking = 1
        start = (
            f'START_REPLICATION SLOT "{slot}" LOGICAL {format_lsn(lsn)} '
            f"(proto_version '1', publication_names '\"{publication}\"')"
        )
        result = self._connection.exec_(start.encode())
        if result.status != pq.ExecStatus.COPY_BOTH:
            raise psycopg.OperationalError(_text(result.error_message))
        self._get = self._connection.get_copy_data
        self._poll = select.poll()
        self._poll.register(self._connection.socket, select.POLLIN)

    def read(self) -> bytes | None:
        """Return the next message, None if there is none yet."""
        size, data = self._get(1)
        if size > 0:
            return bytes(data)
        if size == 0:
            self._connection.consume_input()
            size, data = self._get(1)
            if size > 0:
                return bytes(data)
        if size == 0:
            return None
        result = self._connection.get_result()
        text = _text(self._connection.error_message if result is None else result.error_message)
        state = None if result is None else result.error_field(pq.DiagnosticField.SQLSTATE)
        if state == _UNDEFINED_OBJECT and "publication" in text:
            raise PublicationDroppedError(text)
        raise psycopg.OperationalError(text or "the database has ended the stream")

    def wait(self, timeout_s: float) -> None:
        """Wait until there is something to read, at most this long."""
        self._poll.poll(timeout_s * 1000)

    def confirm(self, lsn: int, *, wants_reply: bool = False) -> None:
        """Tell PostgreSQL that everything before `lsn` is stored, so that it can remove that part of the WAL."""
        self._connection.put_copy_data(_STATUS.pack(b"r", lsn, lsn, lsn, 0, wants_reply))
        while self._connection.flush():
            select.select([], [self._connection.socket], [], 1.0)

    def close(self) -> None:
        self._connection.finish()


def wal_place(data: bytes) -> tuple[int, int, int]:
    """Return the LSN of a message of the plugin, the end of the WAL, and the time in microseconds since 2000."""
    return _WAL.unpack_from(data)


def keepalive(data: bytes) -> tuple[int, int, bool]:
    """Return how far the stream is, the time, and whether PostgreSQL wants an answer."""
    lsn, time_us, wants = _KEEPALIVE.unpack_from(data)
    return lsn, time_us, bool(wants)


def _text(message: bytes | str) -> str:
    text = message.decode(errors="replace") if isinstance(message, bytes) else message
    return " ".join(text.split()).removeprefix("ERROR: ")
