"""Streaming reads of topics in micro-batches: `spark.readStream`.

Spark stores the offsets in its checkpoint, in the JSON format of its own Kafka source. Commits to a consumer group only
show the progress and serve `startingOffsets=committed`.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from skylog.errors import KafkaError
from skylog.model import TopicPartition
from skylog.spark.errors import DataLossError, LostPartitionError, StreamAheadError
from skylog.spark.reading.options import ReadOptions
from skylog.spark.reading.ranges import ReadRange, divide, share_out, within_log

if TYPE_CHECKING:
    import pyarrow as pa

    from skylog.spark.reading.cluster import Cluster
    from skylog.spark.reading.positions import Offsets

logger = logging.getLogger(__name__)


class SkylogStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Lives in one Python process of the driver while the query runs. Executors get a copy that only reads.

    Partitions that are added later are read from their beginning.
    """

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        self._options = options
        self._schema = schema
        self._target: Offsets | None = None
        self._committed: Offsets | None = None
        self._last_batch_s = time.monotonic()
        self._is_unreachable = False

    def __getstate__(self) -> dict[str, Any]:
        return {"_options": self._options, "_schema": self._schema}

    # -- offsets

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802  # Spark's name
        from skylog.spark.reading.positions import Anchor, offsets_json, resolve, starting_position

        position = starting_position(self._options, Anchor.LATEST)
        return offsets_json(resolve(self._cluster, self._partitions(), position, self._options))

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802  # Spark's name
        """Spark has no limit with both a minimum and a maximum. `latestOffset` applies the minimum from the options."""
        if self._options.max_offsets_per_trigger is not None:
            return ReadMaxRows(self._options.max_offsets_per_trigger)
        if self._options.min_offsets_per_trigger is not None:
            return ReadMinRows(self._options.min_offsets_per_trigger)
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802  # Spark's name
        self._target = self.end_offsets()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802  # Spark's name
        from skylog.client import BrokerUnreachableError
        from skylog.spark.reading.positions import offsets_from_json, offsets_json

        starts = offsets_from_json(start)
        self._commit_to_group(starts)  # Spark does not call `commit` for the last micro-batch of a query
        try:
            ends = self._ends(starts)
        except BrokerUnreachableError as error:
            if not self._is_unreachable:
                logger.warning("the cluster is unreachable; the stream waits for it: %s", error)
            self._is_unreachable = True
            return start
        self._is_unreachable = False
        if isinstance(limit, ReadAllAvailable):
            return offsets_json(ends)
        starts |= self._cluster.earliest([key for key in ends if key not in starts])
        if self._should_wait(starts, ends):
            return start
        if isinstance(limit, ReadMaxRows):
            ends = share_out(limit.max_rows, starts, ends)
        return offsets_json(ends)

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802  # Spark's name
        """Return None while the cluster is unreachable: a progress report must not fail the query."""
        from skylog.client import BrokerUnreachableError
        from skylog.spark.reading.positions import offsets_json

        try:
            return offsets_json(self.end_offsets())
        except BrokerUnreachableError:
            return None

    def _ends(self, starts: Mapping[TopicPartition, int]) -> Offsets:
        """Return the end offsets of the logs, or those from the start of the query with availableNow.

        Deleted partitions keep their offset; `partitions` decides whether that is a loss.
        """
        return {**starts, **(self.end_offsets() if self._target is None else self._target)}

    def _should_wait(self, starts: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int]) -> bool:
        fewest = self._options.min_offsets_per_trigger
        if fewest is None or self._target is not None:
            return False
        waiting = sum(end - starts[key] for key, end in ends.items())
        waited_ms = (time.monotonic() - self._last_batch_s) * 1000
        if waiting < fewest and waited_ms < self._options.max_trigger_delay_ms:
            return True
        self._last_batch_s = time.monotonic()
        return False

    # -- one micro-batch

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        from skylog.spark.reading.positions import offsets_from_json

        starts, ends = offsets_from_json(start), offsets_from_json(end)
        moved = [key for key in ends if starts.get(key, -1) != ends[key]]
        there = set(self._partitions())
        for key in set(moved) - there:
            self._report_loss(LostPartitionError(key, starts.get(key, 0), ends[key]))
        keys = [key for key in moved if key in there]
        first, last = self._cluster.earliest(keys), self._cluster.latest(keys)
        for key in keys:
            if key not in starts and first[key] > 0:
                self._report_loss(DataLossError(key, 0, first[key]))
            if ends[key] < starts.get(key, 0):
                self._report_loss(StreamAheadError(key, starts[key], ends[key]))
        ranges = [
            within_log(
                ReadRange(*key, starts.get(key, first[key]), ends[key]),
                first[key],
                last[key],
                fail_on_data_loss=self._options.fail_on_data_loss,
            )
            for key in keys
        ]
        return divide(ranges, self._options.min_partitions, self._options.max_records_per_partition)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, ReadRange)
        from skylog.spark.reading.range_reader import read_range  # imports Arrow and numpy

        return read_range(self._options, partition, self._schema)

    def commit(self, end: dict[str, Any]) -> None:
        from skylog.spark.reading.positions import offsets_from_json

        self._commit_to_group(offsets_from_json(end))

    def _commit_to_group(self, offsets: Offsets) -> None:
        """Commit to the group, if set. The checkpoint is authoritative, so an unreachable broker is not a failure."""
        from skylog.client import BrokerUnreachableError

        group = self._options.committing_group
        if group is None or offsets == self._committed:
            return
        try:
            self._cluster.commit(group, offsets)
            self._committed = offsets
        except (BrokerUnreachableError, KafkaError) as error:
            if isinstance(error, KafkaError) and not error.code.retriable:
                raise
            logger.warning("could not commit the progress to group %s: %s", group, error)

    def _report_loss(self, error: KafkaError) -> None:
        if self._options.fail_on_data_loss:
            raise error
        logger.warning("%s", error)

    # -- the cluster

    @cached_property
    def _cluster(self) -> Cluster:
        from skylog.spark.reading.cluster import Cluster  # imports librdkafka, which executors do not need

        return Cluster(self._options.kafka)

    def _partitions(self) -> list[TopicPartition]:
        from skylog.spark.reading.subscription import chosen_partitions

        return chosen_partitions(self._options, self._cluster.topics())

    def end_offsets(self) -> Offsets:
        """Return the current end offsets of the logs. Raises BrokerUnreachableError."""
        return self._cluster.latest(self._partitions())
