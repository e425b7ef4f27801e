"""An alert of the monitoring job as a message: the job publishes it, the console shows it. Data only."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final

import orjson

from skylog.errors import SkylogError

ALERTS_TOPIC: Final = "_skylog_alerts"
"""Compacted, with one partition; the key is the alert's name, its broker and its labels."""

MAX_TEXT: Final = 500
MAX_LABELS: Final = 20
LAST_TIME_MS: Final = 253_402_300_799_000  # the end of the year 9999


class AlertError(SkylogError):
    """A message in the alerts topic that is not an alert."""


class AlertState(StrEnum):
    """`raised`: the condition holds. `cleared`: it no longer does."""

    RAISED = "raised"
    CLEARED = "cleared"


@dataclass(frozen=True, slots=True)
class Alert:
    """An alert as of `at_ms`. It was raised at `since_ms`, and is about a broker and the `labels` of its metric.

    `measured` is what the metric had then, None if it was no longer reported. `condition` is the rule in words.
    """

    name: str
    state: AlertState
    node_id: int
    since_ms: int
    at_ms: int
    condition: str = ""
    measured: float | None = None
    labels: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def decode(cls, data: bytes) -> Alert:
        """Parse an alert. Raises AlertError. Ignores unknown keys, which a later version may add."""
        try:
            fields: dict[str, Any] = orjson.loads(data)
            measured = fields.get("measured")
            labels = dict(fields.get("labels") or {})
            return cls(
                name=_text(fields["name"]),
                state=AlertState(fields["state"]),
                node_id=_whole(fields["node_id"], 1 << 31),
                since_ms=_whole(fields["since_ms"], LAST_TIME_MS),
                at_ms=_whole(fields["at_ms"], LAST_TIME_MS),
                condition=_text(fields.get("condition", "")),
                measured=None if measured is None else float(measured),
                labels={_text(name): _text(labels[name]) for name in sorted(labels)[:MAX_LABELS]},
            )
        except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
            raise AlertError(f"not an alert: {error!r}") from error


# Any client can write to the topic, and the console shows what it reads: reject everything that a page cannot show.


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"expected a string, not {type(value).__name__}")
    return value[:MAX_TEXT]


def _whole(value: Any, limit: int) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise TypeError(f"expected a whole number, not {type(value).__name__}")
    if not 0 <= value <= limit:
        raise ValueError(f"{value} is not between 0 and {limit}")
    return value
