"""Drops what a capture has made: the slot and the publication in the database, and its position in the log."""

from __future__ import annotations

import psycopg

from skylog.capture.sink import drop_positions, positions_topic
from skylog.capture.source import Source
from skylog.capture.table import CaptureError


def drop_capture(url: str, prefix: str, bootstrap: str | None) -> list[str]:
    """Drop a capture. Return what was dropped. Raises CaptureError while it runs."""
    try:
        source = Source(url, prefix)
        try:
            dropped = source.drop()
        finally:
            source.close()
    except psycopg.Error as error:
        raise CaptureError(" ".join(str(error).split())) from error
    if drop_positions(bootstrap, prefix):
        dropped.append(f"topic {positions_topic(prefix)}")
    return dropped
