"""The status of a pipeline job as a message: jobs publish it, the console shows it. Data only."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any, Final, TypeVar

import orjson

from skylog.errors import SkylogError

Number = TypeVar("Number", int, float)

JOBS_TOPIC: Final = "_skylog_jobs"
"""Compacted, with one partition; the key is the job's name."""

REPORT_EVERY_S: Final = 10.0
"""The longest interval between two reports of a running job."""

MAX_TEXT: Final = 2000  # characters of an error
MAX_NAME: Final = 500
MAX_TOPICS: Final = 100
LAST_TIME_MS: Final = 253_402_300_799_000  # the end of the year 9999


class JobStatusError(SkylogError):
    """A message in the jobs topic that is not a status."""


class JobState(StrEnum):
    """`running`: processing a batch. `waiting`: idle until there is data or the next run. `retrying`: the last attempt
    failed, and another one follows. The others have ended.
    """

    RUNNING = "running"
    WAITING = "waiting"
    RETRYING = "retrying"
    STOPPED = "stopped"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class JobStatus:
    """The status of a job at one point in time.

    `name` is the same for all runs of a job: what it does, its source and its target. `batch`, `records` and `seconds`
    describe the last batch, which ended at `batch_at_ms`; None before the first. `lag` is the number of records in the
    topics after that batch, None if unknown. `records_total` counts from the start of this run.

    A capture has no batches. `lag_bytes` is the part of the database's log that is not in the topics yet, `lag_s` how
    long ago the last captured change was made while there are more, 0 if there are none, and `slot_bytes` what the
    database keeps for it.
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
    lag_bytes: int | None = None
    lag_s: float | None = None
    slot_bytes: int | None = None

    @property
    def is_alive(self) -> bool:
        """Whether the job has not reported its end. A killed job reports none."""
        return self.state in (JobState.RUNNING, JobState.WAITING, JobState.RETRYING)

    def encode(self) -> bytes:
        return orjson.dumps(asdict(self))

    @classmethod
    def decode(cls, data: bytes) -> JobStatus:
        """Parse a status. Raises JobStatusError. Ignores unknown keys, which a later version may add."""
        try:
            fields: dict[str, Any] = orjson.loads(data)
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
                seconds=_optional(_seconds, fields.get("seconds")),
                lag=_optional(_integer, fields.get("lag")),
                records_total=_integer(fields.get("records_total") or 0),
                last_error=None if last_error is None else _text(last_error, MAX_TEXT),
                topics=_names(fields.get("topics") or []),
                lag_bytes=_optional(_integer, fields.get("lag_bytes")),
                lag_s=_optional(_seconds, fields.get("lag_s")),
                slot_bytes=_optional(_integer, fields.get("slot_bytes")),
            )
        except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
            raise JobStatusError(f"not a job status: {error!r}") from error


# Any client can write to the topic, and the console shows what it reads: reject everything that a page cannot show.


def _text(value: Any, limit: int) -> str:
    if not isinstance(value, str):
        raise TypeError(f"expected a string, not {type(value).__name__}")
    return value[:limit]


def _names(value: Any) -> tuple[str, ...]:
    if not isinstance(value, list):
        raise TypeError(f"expected a list of topics, not {type(value).__name__}")
    return tuple(_text(each, MAX_NAME) for each in value[:MAX_TOPICS])


def _integer(value: Any) -> int:
    """Check that `value` is a JSON integer of at most 64 bits."""
    if not isinstance(value, int) or isinstance(value, bool):
        raise TypeError(f"expected a whole number, not {type(value).__name__}")
    if not -(1 << 63) <= value < 1 << 63:
        raise ValueError("a number beyond 64 bits")
    return value


def _time_ms(value: Any) -> int:
    time_ms = _integer(value)
    if not 0 <= time_ms <= LAST_TIME_MS:
        raise ValueError(f"{time_ms} ms is not a calendar time")
    return time_ms


def _seconds(value: Any) -> float:
    if not isinstance(value, int | float) or isinstance(value, bool):
        raise TypeError(f"expected a number, not {type(value).__name__}")
    if not 0 <= value <= LAST_TIME_MS:
        raise ValueError("not a duration")
    return float(value)


def _optional(read: Callable[[Any], Number], value: Any) -> Number | None:
    return None if value is None else read(value)
