"""The report of a tier, and its format as a message of the audit topic.

A tier is a point that messages pass: the producer whose messages were acknowledged, the broker that stored them, the
consumer that processed them, the warehouse that they landed in. Each tier counts the messages of a topic by their
timestamps and publishes the counts since its last report. `books` adds up the reports. Thanks to its unique id, a
report that is published twice counts once.
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
    """A message in the audit topic that is not a valid report."""


class NoAuditTopicError(SkylogError):
    """The cluster has no audit topic: no tier has reported yet."""

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
    """The number of messages with timestamps in [start_ms, end_ms): usually one window.

    It spans several windows if the tier does not know the exact ones, such as for a batch of which only the first and
    the last timestamp are known. `uncertain` messages are not included in `messages`: they may be stored or not, for
    example because a producer died before the acknowledgement.
    """

    start_ms: int
    end_ms: int
    messages: int
    size_bytes: int
    uncertain: int = 0


@dataclass(frozen=True, slots=True)
class Report:
    """The counts of one `source` for one topic since its last report.

    `source` is an application for `produced`, a broker for `stored`, a group for `consumed`, a table for `landed`. All
    except producers count along the log and include the partition and the offsets that they counted: from
    `start_offset` up to `end_offset`, which is exclusive. Brokers add the `topic_id`: a topic that is created again
    under the same name has another one.
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
    topic_id: str | None = None

    def encode(self) -> bytes:
        fields = {
            "id": self.id,
            "tier": self.tier.value,
            "source": self.source,
            "topic": self.topic,
            "partition": self.partition,
            "start_offset": self.start_offset,
            "end_offset": self.end_offset,
            "reported_at_ms": self.reported_at_ms,
            "counts": [[row.start_ms, row.end_ms, row.messages, row.size_bytes, row.uncertain] for row in self.counts],
        }
        return orjson.dumps(fields if self.topic_id is None else {**fields, "topic_id": self.topic_id})

    @classmethod
    def decode(cls, data: bytes) -> Report:
        """Parse a report. Raises ReportError. Ignores unknown keys, which a later version may add."""
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
                topic_id=_text(fields.get("topic_id")),
            )
        except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
            raise ReportError(f"not an audit report: {error!r}") from error


def _integer(value: Any) -> int | None:
    return None if value is None else int(value)


def _text(value: Any) -> str | None:
    return None if value is None else str(value)
