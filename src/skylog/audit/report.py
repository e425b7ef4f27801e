"""What a tier says it has counted, and its form as a message of the audit topic.

A tier is a place that messages pass: the producer that was told they are stored, the broker that stored them, the
consumer that is done with them, the warehouse that they have landed in. Each counts the messages of a topic by the time
they carry and publishes what it counted since its last report. Reports are added up by `books`; the unique id makes a
report that is published twice count once.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final

import orjson

from skylog.errors import SkylogError

AUDIT_TOPIC: Final = "_skylog_audit"
DEFAULT_WINDOW_MS: Final = 60_000


class ReportError(SkylogError):
    """A message of the audit topic that is no report."""


class NoAuditTopicError(SkylogError):
    """Nothing has been reported to a cluster yet."""

    def __init__(self, bootstrap: str) -> None:
        super().__init__(
            f"there is no topic '{AUDIT_TOPIC}' at {bootstrap}: nothing is audited yet; "
            'let a producer count with Producer(…, audit=ProducerAudit("app")) from skylog.audit'
        )


class Tier(StrEnum):
    """Where messages are counted, in the order in which they pass."""

    PRODUCED = "produced"
    STORED = "stored"
    CONSUMED = "consumed"
    LANDED = "landed"


@dataclass(frozen=True, slots=True)
class Count:
    """Messages whose times lie in [start_ms, end_ms): usually one window.

    It is more than one window where a tier cannot tell the messages apart, such as those of a batch that only its first
    and its last time are known of. `uncertain` messages are not among `messages`: they may have been stored or not,
    as when a producer died before it was told.
    """

    start_ms: int
    end_ms: int
    messages: int
    size_bytes: int
    uncertain: int = 0


@dataclass(frozen=True, slots=True)
class Report:
    """What one `source` counted of one topic since its last report.

    `source` names the counter: an application for `produced`, a broker for `stored`, a group for `consumed`, a table
    for `landed`. All but producers count along the log and say which offsets of which partition their counts are of:
    from `start_offset` up to but without `end_offset`.
    """

    tier: Tier
    source: str
    topic: str
    counts: Sequence[Count]
    reported_at_ms: int
    partition: int | None = None
    start_offset: int | None = None
    end_offset: int | None = None
    id: str = field(default_factory=lambda: uuid.uuid4().hex)

    def encode(self) -> bytes:
        return orjson.dumps(
            {
                "id": self.id,
                "tier": self.tier.value,
                "source": self.source,
                "topic": self.topic,
                "partition": self.partition,
                "start_offset": self.start_offset,
                "end_offset": self.end_offset,
                "reported_at_ms": self.reported_at_ms,
                "counts": [
                    [row.start_ms, row.end_ms, row.messages, row.size_bytes, row.uncertain] for row in self.counts
                ],
            }
        )

    @classmethod
    def decode(cls, data: bytes) -> Report:
        """Raises ReportError. Keys that are not known are left alone: a later version may have more to say."""
        try:
            fields: dict[str, Any] = orjson.loads(data)
            return cls(
                tier=Tier(fields["tier"]),
                source=str(fields["source"]),
                topic=str(fields["topic"]),
                counts=[Count(*map(int, row)) for row in fields["counts"]],
                reported_at_ms=int(fields["reported_at_ms"]),
                partition=_integer(fields["partition"]),
                start_offset=_integer(fields["start_offset"]),
                end_offset=_integer(fields["end_offset"]),
                id=str(fields["id"]),
            )
        except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
            raise ReportError(f"this is no report of an audit: {error!r}") from error


def _integer(value: Any) -> int | None:
    return None if value is None else int(value)
