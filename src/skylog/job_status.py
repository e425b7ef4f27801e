"""How a job of the pipeline is doing, as a message: what jobs publish and the console shows. Data only."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any, Final

import orjson

from skylog.errors import SkylogError

JOBS_TOPIC: Final = "_skylog_jobs"
"""Compacted, with one partition; the key is the job's name."""

REPORT_EVERY_S: Final = 10.0
"""A job that is alive reports at least so often."""

MAX_TEXT: Final = 2000  # of an error's characters
MAX_NAME: Final = 500
MAX_TOPICS: Final = 100
LAST_TIME_MS: Final = 253_402_300_799_000  # the end of the year 9999


class JobStatusError(SkylogError):
    """A message of the jobs' topic that is no status."""


class JobState(StrEnum):
    """`running` works on a batch, `waiting` has nothing to do or waits for its time. The others have ended."""

    RUNNING = "running"
    WAITING = "waiting"
    STOPPED = "stopped"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class JobStatus:
    """A job at one moment.

    `name` is the same for all runs of a job: what it does, from where, to where. `batch`, `records` and `seconds` are
    of the last batch, which ended at `batch_at_ms`; None before the first. `lag` is what the topics had beyond it, None
    where that is not known. `records_total` is since this run began.
    """

    name: str
    kind: str
    host: str
    pid: int
    state: JobState
    started_at_ms: int
    reported_at_ms: int
    batch: int | None = None
    batch_at_ms: int | None = None
    records: int | None = None
    seconds: float | None = None
    lag: int | None = None
    records_total: int = 0
    last_error: str | None = None
    topics: tuple[str, ...] = field(default_factory=tuple)

    @property
    def is_alive(self) -> bool:
        """Whether it has not ended, as far as it could tell itself."""
        return self.state in (JobState.RUNNING, JobState.WAITING)

    def encode(self) -> bytes:
        return orjson.dumps(asdict(self))

    @classmethod
    def decode(cls, data: bytes) -> JobStatus:
        """Raises JobStatusError. Keys that are not known are left alone: a later version may have more to say."""
        try:
            fields: dict[str, Any] = orjson.loads(data)
            seconds = fields.get("seconds")
            last_error = fields.get("last_error")
            return cls(
                name=_text(fields["name"], MAX_NAME),
                kind=_text(fields.get("kind", ""), MAX_NAME),
                host=_text(fields.get("host", ""), MAX_NAME),
                pid=_integer(fields.get("pid", 0)),
                state=JobState(fields["state"]),
                started_at_ms=_time_ms(fields["started_at_ms"]),
                reported_at_ms=_time_ms(fields["reported_at_ms"]),
                batch=_optional(_integer, fields.get("batch")),
                batch_at_ms=_optional(_time_ms, fields.get("batch_at_ms")),
                records=_optional(_integer, fields.get("records")),
                seconds=None if seconds is None else _seconds(seconds),
                lag=_optional(_integer, fields.get("lag")),
                records_total=_integer(fields.get("records_total") or 0),
                last_error=None if last_error is None else _text(last_error, MAX_TEXT),
                topics=_names(fields.get("topics") or []),
            )
        except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
            raise JobStatusError(f"this is no status of a job: {error!r}") from error


# Anybody can write to the topic, and what is read is shown: nothing is taken that a page could not show.


def _text(value: Any, limit: int) -> str:
    if not isinstance(value, str):
        raise TypeError(f"expected a text, not {type(value).__name__}")
    return value[:limit]


def _names(value: Any) -> tuple[str, ...]:
    if not isinstance(value, list):
        raise TypeError(f"expected a list of topics, not {type(value).__name__}")
    return tuple(_text(each, MAX_NAME) for each in value[:MAX_TOPICS])


def _integer(value: Any) -> int:
    """A number of JSON's, within 64 bits."""
    if not isinstance(value, int) or isinstance(value, bool):
        raise TypeError(f"expected a whole number, not {type(value).__name__}")
    if not -(1 << 63) <= value < 1 << 63:
        raise ValueError("a number beyond 64 bits")
    return value


def _time_ms(value: Any) -> int:
    time_ms = _integer(value)
    if not 0 <= time_ms <= LAST_TIME_MS:
        raise ValueError(f"{time_ms} ms is no time of the calendar")
    return time_ms


def _seconds(value: Any) -> float:
    if not isinstance(value, int | float) or isinstance(value, bool):
        raise TypeError(f"expected a number, not {type(value).__name__}")
    if not 0 <= value <= LAST_TIME_MS:
        raise ValueError("no length of time")
    return float(value)


def _optional(read: Callable[[Any], int], value: Any) -> int | None:
    return None if value is None else read(value)
