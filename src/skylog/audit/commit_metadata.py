"""The metadata of a commit: the counts that are stored with an offset, as text of at most 4000 bytes.

The format is JSON: a marker with the version, group, topic and partition, the committed offset, and for each report its
id, offsets, time and counts. Text in any other format belongs to another application and holds no counts.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

import orjson

from skylog.audit.counts import fold
from skylog.audit.report import Count, Report, Tier
from skylog.model import TopicPartition

MAX_METADATA_BYTES: Final = 4000  # a broker accepts 4096 (offset.metadata.max.bytes)
MARK: Final = "skylog.audit"
_VERSION: Final = 1


def encode_metadata(group: str, name: TopicPartition, end_offset: int, reports: Sequence[Report]) -> str:
    """Return the text to commit with `end_offset`; counts are merged into spans until it is short enough."""
    limit = max((len(report.counts) for report in reports), default=1)
    while True:
        text = orjson.dumps(
            {
                MARK: _VERSION,
                "group": group,
                "topic": name.topic,
                "partition": name.partition,
                "end": end_offset,
                "reports": [_row(report, fold(report.counts, limit)) for report in reports],
            }
        )
        if len(text) <= MAX_METADATA_BYTES:
            return text.decode()
        if limit == 1:
            return ""  # the group name has kilobytes: its counts are published, but do not survive a crash
        limit = (limit + 1) // 2


def _row(report: Report, counts: Iterable[Count]) -> list[Any]:
    """Write times relative to the first one, to keep them short."""
    first_ms = min((row.start_ms for row in counts), default=0)
    rows = [[row.start_ms - first_ms, row.end_ms - row.start_ms, row.messages, row.size_bytes] for row in counts]
    return [report.id, report.start_offset, report.end_offset, report.reported_at_ms, first_ms, rows]


def pending_reports(metadata: str | None) -> list[Report]:
    """Return the reports in a commit's metadata, published or not; none if the text has another format."""
    return decode_metadata(metadata)[1]


def decode_metadata(metadata: str | None) -> tuple[int | None, list[Report]]:
    """Return the committed offset and the reports in the text; None and an empty list for another format."""
    if not metadata or MARK not in metadata:
        return None, []
    try:
        fields = orjson.loads(metadata)
        if fields[MARK] != _VERSION:
            return None, []
        return int(fields["end"]), [_from_row(fields, *row) for row in fields["reports"]]
    except (KeyError, TypeError, ValueError, IndexError):
        return None, []


def _from_row(
    fields: dict[str, Any], report_id: str, start: int, end: int, at_ms: int, first_ms: int, rows: list[list[int]]
) -> Report:
    return Report(
        tier=Tier.CONSUMED,
        source=str(fields["group"]),
        topic=str(fields["topic"]),
        partition=int(fields["partition"]),
        start_offset=int(start),
        end_offset=int(end),
        counts=[
            Count(first_ms + delta_ms, first_ms + delta_ms + length_ms, int(messages), int(size_bytes))
            for delta_ms, length_ms, messages, size_bytes in rows
        ],
        reported_at_ms=int(at_ms),
        id=str(report_id),
    )
