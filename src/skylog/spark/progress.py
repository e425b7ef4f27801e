"""How far a streaming query is behind, from its progress report.

Spark's Kafka source reports this as `metrics` of a source. Spark does not let a source in Python report metrics, but
reports the offsets from which they follow.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql.streaming.listener import SourceProgress, StreamingQueryProgress


def source_metrics(progress: StreamingQueryProgress) -> list[dict[str, str]]:
    """Return the metrics of each source as Spark's Kafka source reports them.

        source_metrics(query.lastProgress)[0]["maxOffsetsBehindLatest"]

    The names are minOffsetsBehindLatest, maxOffsetsBehindLatest and avgOffsetsBehindLatest, over the partitions. A
    source that reports no latest offset, because the cluster was unreachable or it is not a topic, has no metrics.
    """
    return [_metrics(source) for source in progress.sources]


def _metrics(source: SourceProgress) -> dict[str, str]:
    latest, reached = _offsets(source.latestOffset), _offsets(source.endOffset)
    behind = [max(end - reached.get(key, 0), 0) for key, end in latest.items()]
    if not behind:
        return {}
    return {
        "minOffsetsBehindLatest": str(min(behind)),
        "maxOffsetsBehindLatest": str(max(behind)),
        "avgOffsetsBehindLatest": str(sum(behind) / len(behind)),
    }


def _offsets(text: Any) -> dict[tuple[str, str], int]:
    """Return offsets by topic and partition, or nothing if `text` is not the offset of a topic."""
    try:
        found = json.loads(text)
        return {(topic, number): int(at) for topic, rows in found.items() for number, at in rows.items()}
    except (TypeError, ValueError, AttributeError):
        return {}
