"""What has come since: the records of topics that a job has not worked on yet, as one DataFrame after another.

For jobs that keep their offsets with their results, in one transaction: that is exactly once whatever dies, and no
checkpoint can disagree with the results. Jobs with state of their own in Spark use `readStream` instead.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

from skylog.model import TopicPartition
from skylog.spark.reading.options import read_options
from skylog.spark.reading.positions import offsets_from_json, offsets_json
from skylog.spark.reading.ranges import ReadRange
from skylog.spark.reading.stream_reader import SkylogStreamReader
from skylog.spark.schema import record_schema
from skylog.spark.source import FORMAT

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Offsets = Mapping[TopicPartition, int]


@dataclass(frozen=True)
class Increment:
    """Records from `start`, which names the partitions that have some, up to but without `end`, which names all."""

    start: Offsets
    end: Offsets

    @property
    def offsets(self) -> int:
        """How many; fewer records where the topic was compacted."""
        return sum(self.end[key] - offset for key, offset in self.start.items())


class Increments:
    """Plans increments of `topics` and reads them. Options are those of the data source; raises what it raises."""

    def __init__(
        self,
        bootstrap: str,
        topics: Sequence[str],
        *,
        max_offsets: int | None = None,
        group: str | None = None,
        options: Mapping[str, str] | None = None,
    ) -> None:
        """`group` is told of the progress. Options may say where to start, if not at the beginning."""
        given = {"kafka.bootstrap.servers": bootstrap, **(options or {})}
        planning = {"startingOffsets": "earliest", **given, "subscribe": ",".join(topics)}
        if group is not None:
            planning["groupId"] = group
        settings = read_options(planning, is_stream=True)
        self._topics = frozenset(topics)
        self._reading = {key: value for key, value in given.items() if not key.lower().startswith("starting")}
        self._reader = SkylogStreamReader(settings, record_schema(with_headers=settings.include_headers))
        self._limit = ReadAllAvailable() if max_offsets is None else ReadMaxRows(max_offsets)
        self._beginning: Offsets | None = None

    def until_now(self, done: Offsets | None) -> None:
        """Leave what comes from now on for later, until this is called again."""
        self._start(done)  # which may be the end of the logs, and must not lie behind the end that is fixed now
        self._reader.prepareForTriggerAvailableNow()

    def tell(self, done: Offsets) -> None:
        """Commit to the group, if there is one, what is safe with the results; `next` does so as well."""
        self._reader.commit(offsets_json(done))

    def _start(self, done: Offsets | None) -> Offsets:
        """`done`, and the beginnings of topics that it knows nothing of. Those are looked up once."""
        known = {key.topic for key in done or ()}
        if self._topics <= known:
            return done or {}
        if self._beginning is None:
            self._beginning = offsets_from_json(self._reader.initialOffset())
        new = {key: offset for key, offset in self._beginning.items() if key.topic not in known}
        return {**new, **(done or {})}

    def next(self, done: Offsets | None) -> Increment | None:
        """What follows `done`, which is the end of the last increment or None for the first; None if nothing does.

        What stands in `done` must be safe with the results: it is committed to the group.
        """
        first = offsets_json(self._start(done))
        last = self._reader.latestOffset(first, self._limit)
        starts: dict[TopicPartition, int] = {}
        for piece in self._reader.partitions(first, last):  # where something is lost, this says so
            assert isinstance(piece, ReadRange)
            key = piece.topic_partition
            starts[key] = min(starts.get(key, piece.start_offset), piece.start_offset)
        return Increment(starts, offsets_from_json(last)) if starts else None

    def lag(self, done: Offsets) -> int:
        """Offsets between `done` and the ends of the logs."""
        return sum(max(end - done.get(key, 0), 0) for key, end in self._reader.end_offsets().items())

    def frame(self, spark: SparkSession, increment: Increment) -> DataFrame:
        """The records, with the columns of the data source. Reading it twice gives the same."""
        partitions: dict[str, list[int]] = {}
        for key in increment.start:
            partitions.setdefault(key.topic, []).append(key.partition)
        end = {key: increment.end[key] for key in increment.start}
        where = {
            "assign": json.dumps(partitions),
            "startingOffsets": json.dumps(offsets_json(increment.start)),
            "endingOffsets": json.dumps(offsets_json(end)),
        }
        return spark.read.format(FORMAT).options(**{**self._reading, **where}).load()
