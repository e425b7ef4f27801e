"""Increments: the new records of topics since the last run, as one DataFrame after another.

For jobs that store offsets and results in one transaction. This is exactly once, whatever crashes, and no checkpoint
can disagree with the results. Jobs that keep their state in Spark use `readStream` instead.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pyspark.sql.streaming.datasource import ReadMaxRows
from pyspark.sql.types import StructType

from skylog.model import TopicPartition
from skylog.pipeline.cluster import Cluster
from skylog.pipeline.one_task import FEW_OFFSETS
from skylog.spark.reading.options import ReadOptions, read_options
from skylog.spark.reading.positions import offsets_from_json, offsets_json
from skylog.spark.reading.range_task import BatchFunction, RangeTask
from skylog.spark.reading.ranges import ReadRange, divide
from skylog.spark.reading.stream_reader import SkylogStreamReader
from skylog.spark.schema import record_schema, value_schema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Offsets = Mapping[TopicPartition, int]

_FEW_TASKS: Final = 4  # of `mapped`
_LEAST_OFFSETS: Final = 100_000  # of each of few tasks
_MOST_OFFSETS: Final = 500_000  # of a task, if there are more


@dataclass(frozen=True)
class Increment:
    """Records from `start` to `end` (exclusive). `start` has the partitions with new records, `end` has all."""

    start: Offsets
    end: Offsets

    @property
    def offsets(self) -> int:
        """The number of offsets. There are fewer records if the topic was compacted."""
        return sum(self.end[key] - offset for key, offset in self.start.items())

    def cut_from(self, done: Offsets) -> Offsets:
        """Return the ends that are before `done`, in logs that were lost or made again since."""
        return {key: end for key, end in self.end.items() if end < done.get(key, 0)}

    def of_topic(self, topic: str) -> tuple[Offsets, Offsets]:
        """Return start and end for one topic."""
        start, end = ({key: at for key, at in each.items() if key.topic == topic} for each in (self.start, self.end))
        return start, end


class Increments:
    """Plans and reads increments of `topics`. Options and errors are those of the data source.

    This is the only place where jobs look up offsets.
    """

    def __init__(
        self,
        cluster: Cluster | str,
        topics: Sequence[str],
        *,
        max_offsets: int | None = None,
        group: str | None = None,
        options: Mapping[str, str] | None = None,
    ) -> None:
        """The progress is committed to `group`. Reading starts at the earliest offset unless `options` set another.

        The option pushDownFilters has no effect.
        """
        given = {**Cluster.of(cluster).source_options, **(options or {})}
        planning = {"startingOffsets": "earliest", **given, "subscribe": ",".join(topics)}
        if group is not None:
            planning["groupId"] = group
        self._topics = frozenset(topics)
        self._settings = read_options(planning, is_stream=True)
        records = record_schema(with_headers=self._settings.include_headers)
        self._reader = SkylogStreamReader(self._settings, records)
        self._limit = self._reader.getDefaultReadLimit() if max_offsets is None else ReadMaxRows(max_offsets)
        self._beginning: Offsets | None = None

    def until_now(self, done: Offsets | None) -> None:
        """Ignore records that arrive from now on, until the next call."""
        self._start(done)  # may be the current end of the logs, so look it up before the end is fixed
        self._reader.prepareForTriggerAvailableNow()

    def commit(self, done: Offsets) -> None:
        """Commit offsets that are stored with the results to the group, if set. `next` does this too."""
        self._reader.commit(offsets_json(done))

    def _start(self, done: Offsets | None) -> Offsets:
        """Return `done`, and the start offsets of topics that are not in it. Those are looked up once."""
        known = {key.topic for key in done or ()}
        if self._topics <= known:
            return done or {}
        if self._beginning is None:
            self._beginning = offsets_from_json(self._reader.initialOffset())
        new = {key: offset for key, offset in self._beginning.items() if key.topic not in known}
        return {**new, **(done or {})}

    def next(self, done: Offsets | None) -> Increment | None:
        """Return the increment after `done`, or None if there are no new records.

        It has no records, and lower end offsets, if logs end before `done` and the option failOnDataLoss is off.

        `done` is the end of the last increment, or None for the first one. It must be stored with the results, because
        it is committed to the group.
        """
        before = self._start(done)
        first = offsets_json(before)
        last = self._reader.latestOffset(first, self._limit)
        starts: dict[TopicPartition, int] = {}
        for part in self._reader.partitions(first, last):  # raises an error if records are lost
            assert isinstance(part, ReadRange)
            key = part.topic_partition
            starts[key] = min(starts.get(key, part.start_offset), part.start_offset)
        increment = Increment(starts, offsets_from_json(last))
        return increment if starts or increment.cut_from(before) else None

    def schema(self) -> StructType:
        """Return the columns of `frame`. Those of Avro values may grow from one increment to the next."""
        return _schema(self._settings)

    def end_offsets(self) -> Offsets:
        """Return the current ends of the logs."""
        return self._reader.end_offsets()

    def lag(self, done: Offsets) -> int:
        """Return the number of offsets between `done` and the ends of the logs."""
        return sum(max(end - done.get(key, 0), 0) for key, end in self.end_offsets().items())

    def frame(self, spark: SparkSession, increment: Increment) -> DataFrame:
        """Return the records with the columns of the data source. Every read returns the same records.

        The increment is planned already, so tasks read it directly. The data source would plan it again, in Python
        processes of its own. One task reads a small increment, unless the options set the number of tasks.
        """
        ranges = _ranges(increment)
        tasks = [(each,) for each in divide(ranges, self._settings.min_partitions, self._max_records)]
        is_small = not ranges or (increment.offsets <= FEW_OFFSETS and not self.has_set_tasks)
        schema = self.schema()
        return self._run(spark, RangeTask(self._settings, schema, [tuple(ranges)] if is_small else tasks), schema)

    def mapped(
        self, spark: SparkSession, increment: Increment, function: BatchFunction, schema: StructType | str
    ) -> DataFrame:
        """Return what `function` returns for the batches of records, with these columns.

        The records do not go through Spark's JVM. Tasks are few, because each may write files.
        """
        most = min(max(-(-increment.offsets // _LEAST_OFFSETS), 1), _FEW_TASKS)
        count = max(most, -(-increment.offsets // _MOST_OFFSETS))
        ranges = sorted(divide(_ranges(increment), count), key=len, reverse=True)
        work = [sorted(ranges[number::count], key=_place) for number in range(min(count, max(len(ranges), 1)))]
        return self._run(spark, RangeTask(self._settings, self.schema(), work, function), schema)

    def _run(self, spark: SparkSession, task: RangeTask, schema: StructType | str) -> DataFrame:
        return spark.range(0, len(task.work), 1, len(task.work)).mapInArrow(task, schema)

    @property
    def has_set_tasks(self) -> bool:
        """Whether the options set the number of tasks."""
        return not self._settings.min_partitions is self._max_records is None

    @property
    def _max_records(self) -> int | None:
        return self._settings.max_records_per_partition


def _ranges(increment: Increment) -> list[ReadRange]:
    return [ReadRange(*key, start, increment.end[key]) for key, start in increment.start.items()]


def _place(part: ReadRange) -> tuple[TopicPartition, int]:
    return part.topic_partition, part.start_offset


def _schema(settings: ReadOptions) -> StructType:
    if settings.value_format == "avro" and settings.value_schema is None:
        from skylog.spark.reading.avro_schema import avro_schema

        return avro_schema(settings)
    if settings.value_schema is None:
        return record_schema(with_headers=settings.include_headers)
    found = StructType.fromDDL(value_schema(settings.value_schema, with_headers=settings.include_headers))
    assert isinstance(found, StructType)
    return found
