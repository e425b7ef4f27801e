"""How a job of the pipeline is doing, as a message: what jobs publish and the console shows. Data only."""

from __future__ import annotations

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
            return cls(
                name=str(fields["name"]),
                kind=str(fields.get("kind", "")),
                host=str(fields.get("host", "")),
                pid=int(fields.get("pid", 0)),
                state=JobState(fields["state"]),
                started_at_ms=int(fields["started_at_ms"]),
                reported_at_ms=int(fields["reported_at_ms"]),
                batch=_integer(fields.get("batch")),
                batch_at_ms=_integer(fields.get("batch_at_ms")),
                records=_integer(fields.get("records")),
                seconds=None if fields.get("seconds") is None else float(fields["seconds"]),
                lag=_integer(fields.get("lag")),
                records_total=int(fields.get("records_total") or 0),
                last_error=None if fields.get("last_error") is None else str(fields["last_error"])[:MAX_TEXT],
                topics=tuple(map(str, fields.get("topics") or ())),
            )
        except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
            raise JobStatusError(f"this is no status of a job: {error!r}") from error


def _integer(value: Any) -> int | None:
    return None if value is None else int(value)
