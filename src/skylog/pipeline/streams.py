"""Runs jobs as Spark streaming queries: jobs that write topics, and jobs that keep state in Spark.

Spark stores offsets and state in a checkpoint. A topic gets each record once, because the data source's sink does not
send a batch twice. Tables and databases store the number of the next batch with the results, as the offset of a stream,
so that a batch that Spark repeats is not written again. Only the state that it leads to is computed again.

The checkpoint says how far a target has come, so it must not be used with another one, which would get only what is
new. The file `skylog-stream` beside it names the target:

    {"id": "stream.5f0c…", "reads": ["logins"], "target": "/lake/failures"}

`id` is the topic of the stream's offset in the target. Earlier versions wrote the id alone.
"""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from skylog.durable_files import replace_file
from skylog.errors import SkylogError
from skylog.model import TopicPartition
from skylog.pipeline.cluster import Cluster
from skylog.pipeline.schedule import Schedule
from skylog.pipeline.sink import OpenSink, Sink
from skylog.pipeline.topic import Topic, record_rows
from skylog.spark.session import make_active, register_format
from skylog.spark.source import FORMAT

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

_URI: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:/")
_IDENTITY: Final = "skylog-stream"
_ROCKSDB: Final = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"


class StateError(SkylogError):
    """The state of a stream cannot be used. The message names an alternative."""


class StreamIdentity(NamedTuple):
    """What the file of a state says. `target` is None if an earlier version wrote it."""

    id: str
    reads: tuple[str, ...] = ()
    target: str | None = None


@dataclass(frozen=True)
class StreamState:
    """The directory of the checkpoint of a stream of `reads`. The driver and all executors must have it mounted."""

    path: Path
    reads: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if _URI.match(str(self.path)):
            raise StateError(
                f"state '{self.path}' is a URI: use a directory that the driver and all executors have mounted"
            )

    @property
    def location(self) -> str:
        """The location for Spark, which does not decode the part after the scheme."""
        return f"file:{self.path.absolute()}"

    @property
    def is_kept(self) -> bool:
        """Whether Spark stores state for later batches, such as open windows, and not only offsets."""
        return (self.path / "state").exists()

    def part(self, name: str) -> StreamState:
        return StreamState(self.path / name, self.reads)

    def bind(self, target: str, sink: OpenSink | None = None) -> str:
        """Return the id of the stream into `target`. Raises StateError if the state is of another target, or lost.

        A table or a database with the offset of the stream is its target, whatever its name is now.
        """
        known = self._identity()
        if known is None:
            if sink is not None and sink.has_rows():
                raise StateError(
                    f"{target} has results already, but there is no state of their stream in {self.path}; restore that "
                    "directory, or use another target"
                )
        elif known.target not in (None, target) and not (sink is not None and sink.offsets([known.id])):
            raise StateError(
                f"{self.path} is the state of {', '.join(known.reads)} -> {known.target}, and the target is now "
                f"{target}, which would miss what was processed before; use another --state directory, or the same "
                "target"
            )
        own = StreamIdentity(known.id if known else f"stream.{uuid.uuid4().hex}", tuple(sorted(self.reads)), target)
        if own != known:
            self.path.mkdir(parents=True, exist_ok=True)
            replace_file(self.path / _IDENTITY, json.dumps(own._asdict()).encode())
        return own.id

    def _identity(self) -> StreamIdentity | None:
        file = self.path / _IDENTITY
        text = file.read_text().strip() if file.exists() else ""
        if not text.startswith("{"):
            return StreamIdentity(text) if text else None
        try:
            fields = json.loads(text)
            return StreamIdentity(fields["id"], tuple(fields["reads"]), fields["target"])
        except (ValueError, KeyError, TypeError) as error:
            raise StateError(f"{file} is damaged ({error!r}); restore it, or use another --state directory") from error


@dataclass(frozen=True)
class StreamSource:
    """How to read topics as a stream."""

    cluster: Cluster
    group: str | None = None
    max_offsets: int | None = None
    options: Mapping[str, str] = field(default_factory=dict)

    def read(self, spark: SparkSession, topics: str) -> DataFrame:
        """Return the records of topics, separated by commas, from the beginning unless the options say otherwise."""
        make_active(spark)
        options = {"startingOffsets": "earliest", **self.cluster.source_options, **self.options, "subscribe": topics}
        if self.group is not None:
            options["groupId"] = self.group
        if self.max_offsets is not None:
            options["maxOffsetsPerTrigger"] = str(self.max_offsets)
        return spark.readStream.format(FORMAT).options(**options).load()


def start_query(
    rows: DataFrame, into: Sink | Topic, cluster: Cluster, state: StreamState, schedule: Schedule, mode: str
) -> StreamingQuery:
    """Start a query that writes `rows` to a sink, or continue where its checkpoint ends."""
    if isinstance(into, Topic):
        state.bind(into.target)
        return _topic_query(rows, into, cluster, state, schedule, mode)
    sink = into.open()
    stream = TopicPartition(state.bind(into.target, sink), 0)

    def write(batch: DataFrame, number: int) -> None:
        done = sink.offsets([stream.topic]).get(stream, 0)
        if done <= number:
            sink.write(batch, {stream: done} if done else {}, {stream: number + 1})
        elif state.is_kept:
            batch.write.format("noop").mode("overwrite").save()  # since Spark 4.3, each run must store the state itself

    return _start(rows.writeStream.foreachBatch(write), state, schedule, mode)


def _topic_query(
    rows: DataFrame, into: Topic, cluster: Cluster, state: StreamState, schedule: Schedule, mode: str
) -> StreamingQuery:
    writer = record_rows(rows).writeStream.format(FORMAT).options(**cluster.kafka_options).option("topic", into.name)
    return _start(writer, state, schedule, mode)


def _start(writer: object, state: StreamState, schedule: Schedule, mode: str) -> StreamingQuery:
    query: StreamingQuery = (
        writer.option("checkpointLocation", state.location)  # type: ignore[attr-defined]
        .outputMode(mode)
        .trigger(**schedule.trigger)
        .start()
    )
    return query


def stream_session(spark: SparkSession) -> SparkSession:
    """Return a session of the same application that keeps the state of streams in RocksDB, not in the JVM's memory."""
    session = spark.newSession()
    register_format(session)
    session.conf.set("spark.sql.streaming.stateStore.providerClass", _ROCKSDB)
    return session
