"""Jobs: functions from DataFrame to DataFrame that read topics and write a topic, a table or a database.

    @job(reads="comments", into=Topic("flagged"))
    def spam(events):
        flagged = events.where("event = 'comment.create' AND attributes['body'] RLIKE '(?i)free money'")
        return flagged.selectExpr("attributes['id'] AS key", "attributes['body'] AS value")

A job into a table or a database runs in increments: the function gets the new events since the last run, and the result
is stored together with their end offsets. A job into a topic, and a job with `stream=True`, is a streaming query: the
function gets streaming DataFrames, once, and may use windows, joins of streams and running aggregates.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from skylog.errors import ConfigError
from skylog.pipeline.cluster import Cluster
from skylog.pipeline.event_parser import ENVELOPE, events, unparsed
from skylog.pipeline.function_job import FunctionJob
from skylog.pipeline.increments import Increments
from skylog.pipeline.runnable import JobRun, RunnableJob
from skylog.pipeline.runner import plain_errors, run_increments, run_queries, with_restarts
from skylog.pipeline.schedule import ONCE, Schedule
from skylog.pipeline.sink import Sink
from skylog.pipeline.streams import StreamSource, StreamState, start_query, stream_session
from skylog.pipeline.topic import Topic, unparsed_rows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

STATE: Final = Path("skylog-state")
_MODES: Final = ("append", "complete", "update")

Transform = Callable[..., "DataFrame"]


class Job(RunnableJob):
    """A function, the topics that it reads, and where its results go. Call it with DataFrames, as in a test."""

    def __init__(
        self,
        function: Transform,
        reads: Sequence[str],
        into: Sink | Topic,
        *,
        schema: str | Mapping[str, str] | None = ENVELOPE,
        stream: bool = False,
        mode: str = "append",
        name: str | None = None,
        options: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(name or str(getattr(function, "__name__", "job")), reads, into.target)
        self.function = function
        self.into = into
        self.schema = schema
        self.options = dict(options or {})
        self.is_stream = stream or isinstance(into, Topic)
        self.mode = mode
        functools.update_wrapper(self, function)
        self._check()

    def _result(self, *frames: DataFrame) -> DataFrame:
        """Return the result of the function. Raises ConfigError if it is no DataFrame."""
        from pyspark.sql import DataFrame

        found: Any = self.function(*frames)
        if not isinstance(found, DataFrame):
            kind = "nothing" if found is None else f"an object of type {type(found).__name__}"
            raise ConfigError(f"job '{self.name}': its function returned {kind} instead of a DataFrame")
        return found

    def __call__(self, *frames: DataFrame, **more: Any) -> DataFrame:
        return self.function(*frames, **more)

    def _check(self) -> None:
        if isinstance(self.into, Topic) and self.into.name in self.reads:
            raise ConfigError(f"job '{self.name}' would read its own results from topic '{self.into.name}'")
        if self.mode not in _MODES or (self.mode != "append" and not self.is_stream):
            raise ConfigError(
                f"job '{self.name}': mode={self.mode!r}: expected append or, for streams, complete or update"
            )
        if self._inputs not in (1, len(self.reads)):
            raise ConfigError(
                f"job '{self.name}' reads {len(self.reads)} topics, but its function has {self._inputs} parameters: "
                "use one parameter for all topics together, or one for each"
            )
        if self._inputs > 1 and not self.is_stream:
            raise ConfigError(
                f"job '{self.name}' has several inputs: set stream=True, because an increment of one does not have all "
                "rows that match those of the other"
            )
        if isinstance(self.schema, Mapping) and (unknown := self.schema.keys() ^ set(self.reads)):
            raise ConfigError(f"job '{self.name}': name one schema for each topic; see '{sorted(unknown)[0]}'")

    @functools.cached_property
    def _inputs(self) -> int:
        kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
        parameters = inspect.signature(self.function).parameters.values()
        return sum(each.kind in kinds and each.default is inspect.Parameter.empty for each in parameters)

    @property
    def _groups(self) -> list[tuple[str, ...]]:
        """The topics of each input of the function."""
        return [self.reads] if self._inputs == 1 else [(topic,) for topic in self.reads]

    def _schema_of(self, topics: Sequence[str]) -> str | None:
        return self.schema[topics[0]] if isinstance(self.schema, Mapping) else self.schema

    # -- running

    def run_with(self, spark: SparkSession, cluster: Cluster, run: JobRun) -> None:
        """Run the job, without publishing its status. The options of the run override those of the job."""
        run = replace(run, options={**self.options, **run.options})
        run_once = self._run_stream if self.is_stream else self._run_increments
        with_restarts(self.name, lambda: run_once(spark, cluster, run), run.stop)

    def _run_increments(self, spark: SparkSession, cluster: Cluster, run: JobRun) -> None:
        increments = Increments(cluster, self.reads, max_offsets=run.max_offsets, group=run.group, options=run.options)
        with self.steps() as steps:
            run_increments(steps, increments, spark, run.schedule, run.stop, run.report)

    def steps(self) -> FunctionJob:
        """Return what is done with each increment, for use in `with`."""
        assert not isinstance(self.into, Topic)
        return FunctionJob(self.name, self._result, self.reads, self.into, self._schema_of(self.reads))

    def _run_stream(self, spark: SparkSession, cluster: Cluster, run: JobRun) -> None:
        session = stream_session(spark)
        if isinstance(self.into, Topic):
            self.into.ensure(cluster, self.reads[0])
        # With rounds, each processes everything available and ends.
        schedule = ONCE if run.schedule.has_rounds else run.schedule
        for _ in run.schedule.rounds(run.stop):
            with plain_errors(self.name):
                queries = self._start(session, cluster, run, schedule)
            run_queries(self.name, queries, run.stop, run.report)

    def _start(self, spark: SparkSession, cluster: Cluster, run: JobRun, schedule: Schedule) -> list[StreamingQuery]:
        state = StreamState(run.state or STATE / self.name, self.reads)
        source = StreamSource(cluster, run.group, run.max_offsets, run.options)
        records = [source.read(spark, ",".join(topics)) for topics in self._groups]
        inputs = [self._input(frame, topics) for frame, topics in zip(records, self._groups, strict=True)]
        rows = self._result(*inputs)
        queries = [start_query(rows, self.into, cluster, state, schedule, self.mode)]
        try:
            queries += self._start_unparsed(spark, cluster, run, schedule, state)
        except BaseException:
            queries[0].stop()
            raise
        return queries

    def _start_unparsed(
        self, spark: SparkSession, cluster: Cluster, run: JobRun, schedule: Schedule, state: StreamState
    ) -> list[StreamingQuery]:
        """Start a query that keeps the records that do not parse. It has a checkpoint of its own."""
        found: DataFrame | None = None
        for topics in self._groups:
            schema = self._schema_of(topics)
            if schema is not None:
                source = StreamSource(cluster, None, run.max_offsets, run.options)
                bad = unparsed(source.read(spark, ",".join(topics)), schema)
                found = bad if found is None else found.unionByName(bad)
        if found is None:
            return []
        into = self.into.for_unparsed()
        if isinstance(into, Topic):
            into.ensure(cluster, self.reads[0])
            found = unparsed_rows(found)
        return [start_query(found, into, cluster, state.part("unparsed"), schedule, "append")]

    def _input(self, records: DataFrame, topics: Sequence[str]) -> DataFrame:
        schema = self._schema_of(topics)
        return records if schema is None else events(records, schema)


def job(
    reads: str | Sequence[str],
    into: Sink | Topic,
    *,
    schema: str | Mapping[str, str] | None = ENVELOPE,
    stream: bool = False,
    mode: str = "append",
    name: str | None = None,
    options: Mapping[str, str] | None = None,
) -> Callable[[Transform], Job]:
    """Make a job of a function.

    `reads` names one or several topics. A function with one parameter gets the events of all of them in one DataFrame;
    a function with a parameter for each topic gets a DataFrame for each, and must set `stream`.

    `schema` is the DDL of the events' fields, by default that of `skylog.events`, or a schema for each topic. With
    None, the function gets the records of the data source as they are.

    With `stream`, the job is one streaming query: windows, joins and aggregates keep their state from batch to batch.
    `mode` is Spark's output mode: append, complete, or update for tables and databases with a key.

    `options` are those of the data source that the function needs, such as {"includeHeaders": "true"}.
    """
    topics = (reads,) if isinstance(reads, str) else tuple(reads)

    def decorate(function: Transform) -> Job:
        return Job(function, topics, into, schema=schema, stream=stream, mode=mode, name=name, options=options)

    return decorate
