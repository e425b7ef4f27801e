"""Runs a function over increments: stores its result with the end offsets, and the records that do not parse."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self

from pyspark.sql import Observation

from skylog.model import TopicPartition
from skylog.pipeline.event_parser import events, unparsed
from skylog.pipeline.increments import Increment, Offsets
from skylog.pipeline.sink import OpenSink, Sink

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_PATIENCE_S: Final = 2.0  # Spark delivers an observation soon after the action


class FunctionJob:
    """An incremental job, see `skylog.pipeline.runner.IncrementalJob`. Use it in `with`.

    Records that do not parse are stored first, in a sink with its own offsets. After a crash in between, it skips those
    that it has. The records are read a second time for that, unless Spark has observed that all of them parse.
    """

    def __init__(
        self,
        name: str,
        function: Callable[[DataFrame], DataFrame],
        topics: Sequence[str],
        into: Sink,
        schema: str | None,
    ) -> None:
        self.name = name
        self._function = function
        self._topics = topics
        self._schema = schema
        self._sink = into.open()
        self._side = _UnparsedRecords(into.for_unparsed().open(), topics, schema) if schema is not None else None
        self._done: Offsets = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._sink.close()
        if self._side is not None:
            self._side.close()

    def done(self) -> Offsets | None:
        self._done = self._sink.offsets(self._topics)
        return self._done or None

    def apply(self, records: DataFrame, increment: Increment) -> None:
        side = self._side
        if side is not None and (cut := increment.cut_from(self._done)):
            side.cut(records, cut)
        if side is None or self._schema is None:
            self._sink.write(self._function(records), self._done, increment.end)
        else:
            observation = Observation()
            rows = self._function(events(records, self._schema, observation))

            def keep_unparsed() -> None:
                counts = _observed(observation)
                if counts != {"records": increment.offsets, "unparsed": 0}:
                    side.keep(records, increment)

            self._sink.write(rows, self._done, increment.end, keep_unparsed)
        self._done = increment.end


class _UnparsedRecords:
    """The records that do not parse, in a sink of their own. It has offsets only if there was such a record."""

    def __init__(self, sink: OpenSink, topics: Sequence[str], schema: str) -> None:
        self._sink = sink
        self._topics = topics
        self._schema = schema

    def keep(self, records: DataFrame, increment: Increment) -> None:
        known = self._sink.offsets(self._topics)
        bad = unparsed(records, self._schema).where(_is_new(known, increment))
        found = bad.persist()
        try:
            if known or not found.isEmpty():
                after = {key: max(end, known.get(key, end)) for key, end in increment.end.items()}
                self._sink.write(found, known, after)
        finally:
            found.unpersist()

    def cut(self, records: DataFrame, ends: Offsets) -> None:
        """Go back to the ends of logs that are shorter now, so that what comes there is not taken for known."""
        known = self._sink.offsets(self._topics)
        lower = {key: end for key, end in ends.items() if end < known.get(key, 0)}
        if lower:
            self._sink.write(unparsed(records, self._schema).limit(0), known, {**known, **lower})

    def close(self) -> None:
        self._sink.close()


def _is_new(known: Offsets, increment: Increment) -> str:
    """Return the SQL condition for records that the sink does not have yet."""
    late = {key: known[key] for key, start in increment.start.items() if known.get(key, start) > start}
    return " AND ".join(["true", *(f"NOT {_is_before(key, end)}" for key, end in late.items())])


def _is_before(key: TopicPartition, end: int) -> str:
    return f"(topic = '{key.topic}' AND partition = {key.partition} AND offset < {end})"


def _observed(observation: Any) -> dict[str, Any] | None:
    """Return the counts, or None if Spark has none: the function did not use its input, or another way to run it."""
    found = getattr(observation, "_jo", None)
    if found is None:
        return None  # Spark Connect delivers them with the action only
    deadline = time.monotonic() + _PATIENCE_S
    while not found.future().isCompleted():
        if time.monotonic() >= deadline:
            return None
        time.sleep(0.005)
    counts: dict[str, Any] = observation.get
    return counts
